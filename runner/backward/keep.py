"""What backward needs of the forward pass: kept in memory, or rebuilt for time.

The file's ``recompute`` marks decide; a memory budget overrides them. Inputs and outputs of the call are not counted:
the caller holds them anyway.
"""

from collections.abc import Callable, Collection, Mapping

import torch

from ..graphs.flops import flops
from ..graphs.graph import Graph
from ..planning.plan import buffer_of, bytes_of

FLOPS_PER_BYTE = 150
"""What a GPU computes while it moves a byte (700 TFLOP/s over 4.5 TB/s): makes one cost of work and traffic."""


def kept_bytes(graph: Graph, sizes: Mapping[str, int], io: torch.dtype) -> dict[str, int]:
    """Bytes of each forward value that is kept for backward alone."""
    held = set(graph.outputs.values())
    return {name: bytes_of(buffer_of(graph.values[name], sizes, io)) for name in graph.kept if name not in held}


def choose_recompute(
    derive: Callable[[Collection[str]], Graph], sizes: Mapping[str, int], io: torch.dtype, budget: int
) -> frozenset[str]:
    """The stages to rebuild so that what is kept fits the budget (bytes).

    From keeping everything, the stage that frees most bytes for its cost goes first; in the end, those that turned
    out not to be needed are kept again. derive: ids of the stages to rebuild -> graph. With all rebuilt, nothing but
    inputs is read, so that some choice always fits.
    """

    def total(chosen: frozenset[str]) -> int:
        return sum(kept_bytes(derive(chosen), sizes, io).values())

    chosen: frozenset[str] = frozenset()
    while (now := total(chosen)) > budget:
        graph = derive(chosen)
        makers = dict.fromkeys(graph.values[name].producer for name in kept_bytes(graph, sizes, io))
        gains = {id: now - total(chosen | {id}) for id in makers}
        chosen |= {max(gains, key=lambda id: gains[id] / cost(graph, id, sizes, io))}
    for id in sorted(chosen):
        if total(chosen - {id}) <= budget:
            chosen -= {id}
    return chosen


def cost(graph: Graph, id: str, sizes: Mapping[str, int], io: torch.dtype) -> float:
    """Bytes that a stage moves, its arithmetic counted as bytes."""
    node = graph.nodes[id]
    touched = [name for name in (*node.inputs.values(), *node.outputs.values()) if name]
    moved = sum(bytes_of(buffer_of(graph.values[name], sizes, io)) for name in touched)
    return moved + flops(node, sizes) / FLOPS_PER_BYTE
