"""A stage's reference on the runner's terms: upcast, mapped over packed sequences, rounded to the port dtypes."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch

from ...stages._seqs import Seqs
from ..calling.call_reference import call_reference
from ..graphs.graph import Node
from .dtypes import port_dtype

Tensors = dict[str, torch.Tensor | None]


def run_reference(
    node: Node,
    inputs: Mapping[str, torch.Tensor | None],
    keywords: Mapping[str, float],
    seqs: Seqs,
    compute: torch.dtype,
    dots: AbstractContextManager | None = None,
) -> Tensors:
    """The reference's outputs in the compute dtype. keywords: the axes and params that it may name."""
    with dots or nullcontext():
        cast = inputs if node.stage.transport else {name: upcast(x, compute) for name, x in inputs.items()}
        named = {name: keywords[name] for name in node.stage.reference_keywords}
        if node.stage.is_vjp:
            named["needs"] = frozenset(port.removeprefix("d_") for port in node.outputs)
        whole = node.stage.contract.across or not seqs.packed
        if whole or not any(by_sequence(node, port) for port in node.stage.contract.inputs.values()):
            return call_reference(node, cast, named, keywords)
        return over_sequences(node, cast, named, keywords, seqs)


def upcast(x: torch.Tensor | None, compute: torch.dtype) -> torch.Tensor | None:
    return x.to(compute) if x is not None and x.is_floating_point() else x


def over_sequences(
    node: Node, inputs: Tensors, named: Mapping[str, float], keywords: Mapping[str, float], seqs: Seqs
) -> Tensors:
    """Each sequence alone, joined again; rows and slots past the last sequence are 0.

    An output without a token, chunk or sequence axis (a gradient of a per-head constant) is summed.
    """
    parts, start, slot = [], 0, 0
    contract, held = node.stage.contract, dict(inputs)
    for n, length in enumerate(seqs.lengths):
        slots = -(-length // seqs.C)
        place = {"T": (start, length), "NT": (slot, slots), "N": (n, 1)}
        cut = {name: take(x, axes_of(node, contract.inputs[name]), place) for name, x in held.items()}
        cut |= own_rows(node, held, n)
        own = {axis: place[term][1] for axis, term in node.axes.items() if term in place}
        parts.append(call_reference(node, cut, named, {**keywords, **own}))
        held |= written_over(node, held, parts[-1], n)
        start, slot = start + length, slot + slots
    rest = {"T": seqs.T - start, "NT": seqs.NT - slot, "N": 0}
    return {
        name: join([part[name] for part in parts], axes_of(node, port), rest)
        for name, port in contract.outputs.items()
        if name in parts[0] and not port.mutates
    } | {name: held[over] for name, over in contract.mutated.items()}


def indexed(node: Node, inputs: Tensors) -> bool:
    """Whether rows of states are named by an input; else sequence n owns row n."""
    indices = (name for name, port in node.stage.contract.inputs.items() if port.unit == "index/slot")
    return any(inputs.get(name) is not None for name in indices)


def own_rows(node: Node, held: Tensors, n: int) -> Tensors:
    """The states that sequence n may read: all where an input names its row, its own row otherwise."""
    states = node.stage.contract.mutated.values()
    return {name: held[name] if indexed(node, held) else held[name][n : n + 1] for name in states}


def written_over(node: Node, held: Tensors, outputs: Tensors, n: int) -> Tensors:
    """The states after sequence n."""
    found = {over: outputs[name] for name, over in node.stage.contract.mutated.items()}
    if indexed(node, held):
        return found
    return {over: torch.cat([held[over][:n], x, held[over][n + 1 :]]) for over, x in found.items()}


def axes_of(node: Node, port) -> tuple:
    """A port's axes under the pipeline's names."""
    return tuple(node.axes.get(axis, axis) for axis in port.axes)


def by_sequence(node: Node, port) -> bool:
    """Whether a port holds something of each sequence; a constant of the model, or its gradient, does not."""
    return not {"T", "NT", "N"}.isdisjoint(axes_of(node, port))


def take(x: torch.Tensor | None, axes: tuple, place: Mapping[str, tuple[int, int]]) -> torch.Tensor | None:
    if x is None:
        return None
    for dim, axis in enumerate(axes):
        if axis in place:
            x = x.narrow(dim, *place[axis])
    return x


def join(parts: list[torch.Tensor | None], axes: tuple, rest: Mapping[str, int]) -> torch.Tensor | None:
    if parts[0] is None:
        return None
    dims = [dim for dim, axis in enumerate(axes) if axis in rest]
    if not dims:
        return torch.stack(parts).sum(0)
    padding = list(parts[0].shape)
    padding[dims[0]] = rest[axes[dims[0]]]
    return torch.cat([*parts, parts[0].new_zeros(padding)], dims[0])


def rounded(node: Node, outputs: Tensors, io: torch.dtype, wanted) -> Tensors:
    """Outputs in their ports' dtypes; those that nobody asked for are dropped."""
    ports = node.stage.contract.outputs
    return {
        name: x.to(port_dtype(ports[name].dtype, io)).contiguous() if x is not None and name in wanted else None
        for name, x in outputs.items()
    }
