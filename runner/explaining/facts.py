"""A pipeline with sizes and a machine: everything that ``why`` draws on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from ..backward.keep import choose_recompute
from ..calling.function import Op
from ..diagnostics.marks import Mark
from ..graphs.graph import Graph, Node, Value
from ..planning.plan import buffer_of, bytes_of


@dataclass(frozen=True)
class Facts:
    """sizes: of every axis. device: a class, cpu or sm_90. asked: the back end as asked for, backend: as resolved.

    packed: whether the sequences are. backward: whether the rebuild and backward phases are spoken of by name.
    fused: node id -> why the planner joins it with others, or does not; a planner without rewrites gives no reason.
    """

    op: Op
    sizes: Mapping[str, int]
    io: torch.dtype
    device: str
    asked: str
    backend: str
    packed: bool = False
    backward: bool = False
    budget: int | None = None
    fused: Mapping[str, str] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.joint if self.backward else self.op.whole

    @cached_property
    def joint(self) -> Graph:
        """With the gradients of every input that has one; rebuilt as the marks or the budget say. What a pipeline that
        writes over its inputs has none of."""
        if self.op.whole.mutated:
            return self.op.whole
        if self.budget is None:
            return self.op.trainable_graph()
        return self.op.trainable_graph(
            choose_recompute(lambda ids: self.op.trainable_graph(frozenset(ids)), self.sizes, self.io, self.budget)
        )

    def bytes(self, value: Value) -> int | None:
        """None where an axis has no size: nothing fixes it, and `check` warns of that."""
        known = all(isinstance(axis, int) or axis in self.sizes for axis in value.axes)
        return bytes_of(buffer_of(value, self.sizes, self.io)) if known else None

    def producer(self, value: Value) -> Node | None:
        return self.graph.nodes[value.producer] if value.producer else None


def edge_place(node: Node, port: str) -> Mark | None:
    """Where an edge is written; for the phases that no file writes, where the stage is."""
    return node.edge_marks.get(port, node.mark) if node.phase == "forward" else node.mark


def shape_of(value: Value) -> str:
    return f"[{' '.join(map(str, value.axes))}]"


def type_of(value: Value) -> str:
    """Shape, dtype, unit and laws in one line."""
    parts = [f"{shape_of(value)} {value.dtype}", value.unit, *(f"where {law.text}" for law in value.laws)]
    return ", ".join(filter(None, parts))
