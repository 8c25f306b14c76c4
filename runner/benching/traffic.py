"""Bytes: what each edge hands over through memory, and the least that the op has to move."""

from collections.abc import Iterable, Mapping

import torch

from ..graphs.graph import Graph
from ..planning.plan import Plan, buffer_of, bytes_of
from .record import Edge


def edges(graph: Graph, sizes: Mapping[str, int], io: torch.dtype) -> tuple[Edge, ...]:
    """Of a graph that ran: every reading of a value, then every output and gradient that leaves. Sorted by producer."""
    results = [name for name in (*graph.outputs.values(), *graph.gradients.values()) if name]
    found = []
    for value in graph.values.values():
        size = bytes_of(buffer_of(value, sizes, io))
        targets = [*(node for node, _ in graph.consumers(value.name)), *("" for name in results if name == value.name)]
        found += [Edge(value.name, value.producer or "", target, size) for target in dict.fromkeys(targets)]
    return tuple(found)


def op_bytes(plans: Iterable[Plan]) -> int:
    """The least that any implementation moves: inputs and cotangents read once, outputs and gradients written once. Of
    states in slots, those of this call's sequences."""
    plans = tuple(plans)
    graph, sizes, io = plans[0].graph, plans[0].sizes, plans[0].io
    slots = {"SLOTS": min(sizes.get("N", 0), sizes.get("SLOTS", 0))}
    leaving = {value for plan in plans for value in plan.results.values()} - set(graph.kept)
    leaving |= {value for value in graph.outputs.values() if value in graph.kept}
    names = [*graph.inputs, *graph.cotangents.values(), *leaving]
    present = [graph.values[name] for name in names if name in graph.values and name not in graph.absent]
    return sum(bytes_of(buffer_of(value, {**sizes, **slots}, io)) for value in present)
