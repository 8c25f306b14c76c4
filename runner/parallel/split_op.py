"""An op as the calls of a cut sequence see it (call.Call): its graphs are split, its plans are its own."""

from functools import partial

from ..calling.call import Call
from ..calling.function import Op
from ..graphs.graph import Graph
from ..planning.least_recent import LeastRecent
from ..rewriting.fusion import AUTO, NONE, fused_graph, fusions
from .exchange_stage import Ranks
from .gather_stage import Rows
from .split_graph import against_cut, split_graph


class SplitOp:
    """reach, rows: as in split_graph."""

    together = True

    def __init__(self, op: Op, ranks: Ranks, reach: str, rows: Rows = None):
        self.op, self.ranks, self.reach, self.rows = op, ranks, reach, rows
        self.memory_budget = op.memory_budget
        self.graphs, self.plans = LeastRecent(64), LeastRecent(256)

    def graph(self, absent: frozenset[str]) -> Graph:
        return self.split(absent, lambda: self.op.graph(absent))

    def joint_graph(self, absent, wanted, cotangents, recompute=None) -> Graph:
        """As Op.joint_graph; derived first, so that the reverse exchange goes around the scan's own gradient."""
        key = (absent, wanted, cotangents, recompute)
        return self.split(key, lambda: self.op.joint_graph(*key))

    def split(self, key, make) -> Graph:
        return self.graphs.get(key, lambda: self.cut(make()))

    def cut(self, graph: Graph) -> Graph:
        return split_graph(graph, self.op.stages, self.ranks, self.reach, self.rows)

    def fused(self, graph: Graph, sizes, device, io=None) -> Graph:
        """One of these graphs as it was, fused and then cut: what a segment's map is made of is what the fused scan
        reads."""
        if self.op.fuse == NONE:
            return graph

        def make():
            allowed, whole = fusions(self.op.fuse, self.op.stages, device, io), graph.file
            against = partial(against_cut, whole)
            named = self.op.fuse != AUTO
            return graph, self.cut(fused_graph(whole, allowed, self.op.stages, sizes, device, io, against, named))

        key = ("fused", id(graph), tuple(sizes.items()), device, io)
        return self.graphs.get(key, make)[1]

    def has_gradient(self, name: str, absent: frozenset[str] = frozenset()) -> bool:
        return self.op.has_gradient(name, absent)

    def recompute_choice(self, call: Call) -> frozenset[str]:
        """The op's own: states and maps that crossed the cut are kept beside the budget, for no rank can rebuild them
        alone."""
        return self.op.recompute_choice(call)
