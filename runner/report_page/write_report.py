"""Everything that a report is, as files: report.html, the graphs and plots beside it, and trace.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..benching.record import NOT_VERIFIED, Record
from ..calling.function import Op
from ..drawing.draw_svg import dark_style
from ..reporting.write_file import write_file
from .chrome_trace import chrome_trace
from .plot import Plot
from .plot_sweep import sweep_plot, sweeps_of
from .runs import Run, runs_of
from .texts import moment
from .views import PipelineView, pipeline_views


def write_report(records: Sequence[Record], pipelines: Mapping[str, Op], out_dir: Path) -> list[Path]:
    """The files written, ``report.html`` first; the page stands alone, the others are its parts and trace.json.

    pipelines: name -> the op whose graph and file the page shows; without it the page says that it has none. Raises
    ChunkwiseError where a file cannot be written.
    """
    runs = runs_of(records)
    views = pipeline_views(runs, pipelines)
    sweeps = [found for sweep in sweeps_of(runs) if (found := sweep_plot(sweep))]
    files: dict[str, str | bytes] = {"report.html": page_text(runs, views, sweeps), "trace.json": chrome_trace(runs)}
    for view in (each for pipeline in views for each in pipeline.runs):
        files |= {f"plots/{view.run.name}-graph.{view.drawing.suffix}": view.drawing.text} if view.drawing else {}
    for plot in (*sweeps, *(each for pipeline in views for view in pipeline.runs for each in view.plots)):
        files |= {f"plots/{plot.name}.svg": plot.svg, f"plots/{plot.name}.png": plot.png}
    for name, content in files.items():
        write_file(out_dir / name, content, folder=True)
    return [out_dir / name for name in files]


def page_text(runs: Sequence[Run], views: Sequence[PipelineView], sweeps: Sequence[Plot]) -> str:
    """The page, with nothing in it that has to be fetched."""
    loader = PackageLoader(__package__)
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return templates.get_template("report.html.j2").render(
        title=" and ".join(view.name for view in views) or "no records",
        pipelines=views,
        sweeps=sweeps,
        machines=machines(runs),
        on_cpu=[run for run in runs if run.on_cpu],
        measured=sorted({moment(record.time) for run in runs for record in run.records}),
        unverified=any(record.gate == NOT_VERIFIED for run in runs for record in run.records),
        graph_colours=Markup(dark_style()),
        style=Markup(loader.get_source(templates, "report.css")[0]),
        script=Markup(loader.get_source(templates, "report.js")[0]),
    )


def machines(runs: Sequence[Run]) -> list[Mapping[str, object]]:
    """Every environment, once; what it does not have is left out."""
    found = {run.records[0].environment_id: run.environment for run in runs}
    return [{name: value for name, value in facts.items() if value is not None} for facts in found.values()]
