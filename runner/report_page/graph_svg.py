"""The graph of a run, with its times and bytes, linked to the rows of its table."""

import re
from collections.abc import Iterable

from ..calling.function import Op
from ..drawing.draw import Drawing, draw
from ..graphs.graph import Graph
from ..rewriting.fusion import as_ran
from .inline_svg import inline
from .runs import Run


def graph_of(op: Op, run: Run) -> Graph:
    """The graph that ran: with the file's own axes at their sizes, fused as its stages say, in its recurrent form, or
    with its backward pass."""
    sizes = {axis: run.workload.axes[axis] for axis in op.spec.axes if axis in run.workload.axes}
    op = op.with_axes(sizes) if sizes else op
    uses = {row.id: row.uses for row in run.stages}
    found = [as_ran(graph, op.stages, uses) for graph in plain_graphs(op, run)]
    return next((graph for graph in found if graph.nodes.keys() == uses.keys()), found[0])


def plain_graphs(op: Op, run: Run) -> list[Graph]:
    """Before anything is fused. With a backward pass the one with what was rebuilt in the run, whether marks or a
    memory budget decided, and, as a fused stage rebuilds what others made, the one that the marks say."""
    absent = frozenset(name for name in run.workload.absent if name in op.spec.inputs)
    if run.workload.backward:
        rebuilt = frozenset(row.id.removesuffix(".rebuild") for row in run.stages if row.phase == "rebuild")
        marked = op.trainable_graph(None, absent)
        return [op.trainable_graph(rebuilt, absent), marked] if run.stages else [marked]
    recurrent = op.recurrent(absent) if run.workload.mode == "recurrent" else None
    return [recurrent or op.graph(absent)]


def drawing_of(graph: Graph, run: Run) -> Drawing:
    backends = {row.id: row.implementation for row in run.stages_of(run.implementations[0])} if run.stages else {}
    sizes = dict(run.workload.axes)
    return draw(graph, "svg", sizes=sizes, times=run.times(), io_dtype=run.workload.dtype, backends=backends)


def linked(drawing: Drawing, run: Run, rows: Iterable[str]) -> str:
    """The SVG for the page; each node leads to its row. rows: the ids of the nodes that have one."""
    links = {f"stage-{safe(id)}": row_id(run, id) for id in rows}
    text = inline(drawing.text, f"{run.name}-", links=links)
    for id in rows:
        node = f'id="{node_id(run, id)}"'
        text = text.replace(node, f'{node} data-lit="{lit(run, id)}"')
    return text


def safe(id: str) -> str:
    """As drawing.draw_svg writes ids."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", id)


def node_id(run: Run, id: str) -> str:
    return f"{run.name}-stage-{safe(id)}"


def row_id(run: Run, id: str) -> str:
    return f"{run.name}-row-{safe(id)}"


def lit(run: Run, id: str) -> str:
    """What a row, a node and a line have in common."""
    return f"{run.name}-{safe(id)}"
