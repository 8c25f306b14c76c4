"""The states and rows of a call: one state for each sequence, what is written over lies apart and is written once,
and counts of rows keep their laws."""

from collections.abc import Mapping

import torch

from ...stages._laws import violations
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph
from ..planning.execute import has_memory, readable
from .check_call import wrong


def check_state_count(graph: Graph, tensors, sizes: Mapping[str, int]) -> None:
    """States have one entry per sequence."""
    for name, x in tensors.items():
        axes = graph.inputs[name].axes
        if x is not None and "N" in axes and x.shape[axes.index("N")] != sizes["N"]:
            things = "numbers" if graph.inputs[name].dtype == "int" else "states"
            message = f"has {x.shape[axes.index('N')]} {things}, and the number of sequences is {sizes['N']}"
            raise ChunkwiseError(wrong(graph.inputs[name], message))


def check_written(graph: Graph, tensors: Mapping[str, torch.Tensor | None], sizes: Mapping[str, int]) -> None:
    """What is written over is written where it lies, by nobody twice, and every sequence has a row there."""
    for name in graph.mutated.values():
        x, slots = tensors[name], graph.spec.inputs[name].slots
        found = [*place_errors(graph, name, x), *shared_memory(graph, name, tensors)]
        if slots and tensors[slots.value] is not None:
            found += row_errors(graph, slots.value, tensors[slots.value], name, x.shape[0])
        elif slots and x.shape[0] < sizes["N"]:
            message = f"has {x.shape[0]} rows for {sizes['N']} sequences"
            found.append(wrong(graph.inputs[name], message, f"pass {slots.value}: which row is whose"))
        if found:
            raise ChunkwiseError(*found)


def check_rows(graph: Graph, tensors: Mapping[str, torch.Tensor | None]) -> None:
    """Counts and ends of rows keep their laws: none below 0, none before the one that it follows. Only of numbers on
    the host: nothing waits for a device."""
    for name, x in tensors.items():
        value = graph.inputs[name]
        if x is None or value.dtype != "int" or x.device.type != "cpu" or not has_memory(x):
            continue
        for law in value.laws:
            wrong_at = violations(law, x, value.axes, 1).nonzero() if law.kind in COUNTED else ()
            if len(wrong_at):
                at = wrong_at[0].tolist()
                message = f"has {x[tuple(at)].item()} at {at}, and its law is {law.text}"
                raise ChunkwiseError(wrong(value, message, law.words))


COUNTED = ("row_count", "row_ends")
"""Laws of whole numbers where every number counts: of rows that are named, one that is not read may be any."""


def place_errors(graph: Graph, name: str, x: torch.Tensor) -> list[Diagnostic]:
    """Whether a tensor can be written where it lies."""
    if readable(x) is not x:
        message = "is written over, so it must be contiguous and start at a multiple of 16 bytes"
        return [wrong(graph.inputs[name], message, "keep the states in one tensor of their own")]
    if x.is_inference() and not torch.is_inference_mode_enabled():
        message = "is written over, and it was made under torch.inference_mode, which this call is not under"
        return [wrong(graph.inputs[name], message, f"call under torch.inference_mode, or pass {name}.clone()")]
    return []


def shared_memory(graph: Graph, name: str, tensors: Mapping[str, torch.Tensor | None]) -> list[Diagnostic]:
    """The inputs that lie where another one is written: what a kernel reads of them would be old here, new there."""
    written = tensors[name]
    if not has_memory(written):
        return []
    start = written.data_ptr()
    end = start + written.nbytes
    help = "keep the states in one tensor of their own"
    return [
        wrong(graph.inputs[name], f"is written over, and {other} shares memory with it", help)
        for other, x in tensors.items()
        if x is not None and other != name and x.data_ptr() < end and start < end_of(x)
    ]


def end_of(x: torch.Tensor) -> int:
    """The address after a tensor's last byte; 0 where it has none."""
    if not (size := x.nbytes):
        return 0
    if x.is_contiguous():
        return x.data_ptr() + size
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride()))
    return x.data_ptr() + (last + 1) * x.element_size()


def row_errors(graph: Graph, slots: str, indices: torch.Tensor, name: str, rows: int) -> list[Diagnostic]:
    """Rows that are not there, or that two sequences own. Only of indices on the host: nothing waits for a device."""
    if indices.device.type != "cpu" or not has_memory(indices):
        return []
    value, owner = graph.inputs[slots], {}
    for n, row in enumerate(indices.tolist()):
        if not -1 <= row < rows:
            help = "-1 is a sequence without a row"
            return [wrong(value, f"gives sequence {n} the row {row}, and {name} has the rows 0 to {rows - 1}", help)]
        if row >= 0 and owner.setdefault(row, n) != n:
            message = f"gives the sequences {owner[row]} and {n} the same row {row} of {name}"
            return [wrong(value, message, "each sequence writes its state: give it a row of its own")]
    return []
