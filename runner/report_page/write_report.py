"""Everything that a report is, as files: report.html, the graphs and plots beside it, and trace.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from ..benching.record import NOT_VERIFIED, Record
from ..calling.function import Op
from ..drawing.draw_svg import dark_style
from ..reporting.write_file import write_bytes, write_file
from .chrome_trace import chrome_trace
from .plot import Plot
from .plot_sweep import sweep_plot, sweeps_of
from .runs import Run, runs_of
from .texts import moment
from .views import DRAWN, PipelineView, pipeline_views


def write_report(records: Sequence[Record], pipelines: Mapping[str, Op], out_dir: Path) -> list[Path]:
    """The files written, ``report.html`` first; the page stands alone, the others are its parts and trace.json.

    pipelines: name -> the op whose graph and file the page shows; without it the page says that it has none. Raises
    ChunkwiseError where a file cannot be written.
    """
    runs = runs_of(records)
    views = pipeline_views(runs, pipelines)
    sweeps = [found for sweep in sweeps_of(runs) if (found := sweep_plot(sweep))]
    plots = [*sweeps, *(each for pipeline in views for view in pipeline.runs for each in view.plots)]
    drawn = [view for pipeline in views for view in pipeline.runs if view.drawing]
    texts = {"report.html": page_text(runs, views, sweeps), "trace.json": chrome_trace(runs)}
    texts |= {f"plots/{view.run.name}-graph.{view.drawing.suffix}": view.drawing.text for view in drawn}
    texts |= {f"plots/{plot.name}.svg": plot.svg for plot in plots}
    pictures = {f"plots/{plot.name}.png": plot.png for plot in plots}
    for name, text in texts.items():
        write_file(out_dir / name, text, folder=True)
    for name, content in pictures.items():
        write_bytes(out_dir / name, content)
    return [out_dir / name for name in (*texts, *pictures)]


def page_text(runs: Sequence[Run], views: Sequence[PipelineView], sweeps: Sequence[Plot]) -> str:
    """The page, with nothing in it that has to be fetched."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(__package__)
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return templates.get_template("report.html.j2").render(
        title=" and ".join(view.name for view in views) or "no records",
        pipelines=views,
        sweeps=sweeps,
        drawn=DRAWN,
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
