"""Runs with their graphs, plots and tables, in the shape that the template walks through."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ..calling.function import Op
from ..drawing.draw import Drawing
from . import graph_svg
from .plot import Plot
from .plot_errors import errors_plot
from .plot_roofline import roofline
from .plot_timeline import timeline
from .runs import Run
from .tables import Table, edge_table, kernel_table, tables_of
from .texts import axes_text, workload_title
from .yaml_source import Line, SourceFile, made_by, source_files

DRAWN = 24
"""Runs with a graph and plots of their own, at most: of more, a page opens slowly and nobody looks at them all."""


@dataclass(frozen=True)
class RunView:
    """rows: the nodes that have a row of their own. nodes: those of the graph. drawing: None without the pipeline.
    brief: there are too many runs: the page has its tables alone."""

    run: Run
    tables: list[Table]
    details: list[Table]
    plots: list[Plot]
    rows: tuple[str, ...]
    nodes: frozenset[str]
    drawing: Drawing | None
    brief: bool

    @property
    def title(self) -> str:
        return workload_title(self.run.workload)

    @property
    def axes(self) -> str:
        return axes_text(self.run.workload)

    @property
    def svg(self) -> Markup | None:
        """The graph, its nodes linked to their rows; None where it could not be laid out."""
        if self.drawing is None or self.drawing.format != "svg":
            return None
        return Markup(graph_svg.linked(self.drawing, self.run, [id for id in self.rows if id in self.nodes]))

    def row_id(self, id: str) -> str:
        return graph_svg.row_id(self.run, id)

    def node_id(self, id: str) -> str:
        return graph_svg.node_id(self.run, id)

    def lit(self, id: str) -> str:
        return graph_svg.lit(self.run, id)


@dataclass(frozen=True)
class PipelineView:
    """lines: node id -> the line that made it."""

    id: str
    name: str
    summary: str
    sources: list[SourceFile]
    lines: Mapping[str, Line]
    runs: list[RunView]

    def makes(self, line: Line) -> list[str]:
        """The nodes of a line that the first run's table has rows of."""
        return [node for node in line.nodes if node in self.runs[0].rows]

    def lit(self, line: Line) -> str:
        """What lights up together with the line: what it made, in every run."""
        return " ".join(view.lit(node) for view in self.runs for node in line.nodes)


def pipeline_views(runs: Sequence[Run], pipelines: Mapping[str, Op]) -> list[PipelineView]:
    drawn = frozenset(run.name for run in runs[:DRAWN])
    names = enumerate(dict.fromkeys(run.pipeline for run in runs), start=1)
    return [
        pipeline_view(f"pipeline-{n}", name, [run for run in runs if run.pipeline == name], pipelines.get(name), drawn)
        for n, name in names
    ]


def pipeline_view(id: str, name: str, runs: Sequence[Run], op: Op | None, drawn: frozenset[str]) -> PipelineView:
    graphs = {run.name: graph_svg.graph_of(op, run) for run in runs if op and (run.name in drawn or run is runs[0])}
    sources = source_files(graphs.values(), id)
    views = [run_view(run, graphs.get(run.name), run.name not in drawn) for run in runs]
    return PipelineView(id, name, op.spec.summary if op else "", sources, made_by(sources), views)


def run_view(run: Run, graph, brief: bool) -> RunView:
    drawing = graph_svg.drawing_of(graph, run) if graph and not brief else None
    drawn = frozenset(graph.nodes) if drawing and drawing.format == "svg" else frozenset()
    rows = tuple(row.id for row in run.stages_of(run.implementations[0])) if run.implementations else ()
    details = [table for table in (kernel_table(run), edge_table(run)) if table]
    plots = [] if brief else [plot for plot in (timeline(run), roofline(run), errors_plot(run)) if plot]
    return RunView(run, tables_of(run), details, plots, rows, drawn, drawing, brief)
