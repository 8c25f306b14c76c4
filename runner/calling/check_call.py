"""The tensors of a call against the graph: kinds, ranks, dtypes, devices, sizes, each complaint by name."""

from collections.abc import Mapping

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph, Value
from ..planning.dtypes import CLASSES, IO_DTYPES, name_of, other_layout, port_dtype


def check_tensors(graph: Graph, tensors: Mapping[str, torch.Tensor | None]) -> tuple[torch.dtype, torch.device]:
    """(IO dtype, device) of a call; wrong kinds, ranks, dtypes and devices are refused by name."""
    present = {name: x for name, x in tensors.items() if x is not None}
    found = []
    for name, x in present.items():
        value = graph.inputs[name]
        if not isinstance(x, torch.Tensor):
            found.append(wrong(value, f"must be a tensor, it is {type(x).__name__}"))
        elif layout := other_layout(x):
            found.append(wrong(value, f"must be a dense tensor, it is {layout}", DENSE))
        elif x.dim() != len(value.axes):
            axes = "1 axis" if len(value.axes) == 1 else f"{len(value.axes)} axes"
            found.append(wrong(value, f"must have {axes}, it has the shape {list(x.shape)}"))
    if found:
        raise ChunkwiseError(*found)
    io = io_dtype(graph, present)
    device = next(iter(present.values())).device
    for name, x in present.items():
        value = graph.inputs[name]
        found += dtype_errors(value, x, io)
        if x.device != device:
            first = next(iter(present))
            found.append(wrong(value, f"is on {x.device}, {first} is on {device}"))
    if found:
        raise ChunkwiseError(*found)
    return io, device


DENSE = "sequences of several lengths are packed along T, with their lengths in seqlens"


def wrong(value: Value, message: str, help: str | None = None) -> Diagnostic:
    axes = " ".join(map(str, value.axes))
    return Diagnostic(codes.TENSOR, f"{value.name} [{axes}] {message}", value.mark, help=help)


def io_dtype(graph: Graph, present: Mapping[str, torch.Tensor]) -> torch.dtype:
    """The one dtype of the inputs that name none."""
    dtypes = {name: x.dtype for name, x in present.items() if graph.inputs[name].dtype == "io"}
    if not dtypes:
        return torch.float32
    first = next(iter(dtypes.values()))
    if len(set(dtypes.values())) > 1:
        have = ", ".join(f"{name} is {name_of(dtype)}" for name, dtype in dtypes.items())
        message = f"the inputs of {graph.name} must share one dtype: {have}"
        raise ChunkwiseError(Diagnostic(codes.TENSOR, message, help=f"cast them to one of {', '.join(IO_DTYPES)}"))
    if first not in IO_DTYPES.values():
        name = next(iter(dtypes))
        raise ChunkwiseError(wrong(graph.inputs[name], f"is {name_of(first)}; dtypes are {', '.join(IO_DTYPES)}"))
    return first


def dtype_errors(value: Value, x: torch.Tensor, io: torch.dtype) -> list[Diagnostic]:
    if value.dtype in CLASSES:
        allowed = CLASSES[value.dtype]
        either = " or ".join(map(name_of, allowed))
        return [] if x.dtype in allowed else [wrong(value, f"must be {either}, it is {name_of(x.dtype)}")]
    wanted = port_dtype(value.dtype, io)
    if x.dtype == wanted:
        return []
    return [wrong(value, f"must be {name_of(wanted)}, it is {name_of(x.dtype)}", f"pass {value.name}.to({wanted})")]


def read_sizes(graph: Graph, tensors: Mapping[str, torch.Tensor | None]) -> dict[str, int]:
    """Every axis of the inputs as a number; two tensors that disagree are an error that names both."""
    fixed = {name: written.value for name, written in graph.spec.axes.items()}
    sizes, first, found = {}, {}, []
    for name, x in tensors.items():
        if x is None:
            continue
        value = graph.inputs[name]
        for axis, length in zip(value.axes, x.shape):
            wanted = axis if isinstance(axis, int) else fixed.get(axis, sizes.get(axis, length))
            if length != wanted:
                by = f"{first[axis]} has {wanted}" if axis in first else f"the file says {wanted}"
                have = f"the size {length}" if isinstance(axis, int) else f"{axis} = {length}"
                found.append(wrong(value, f"has {have}, {by}"))
            elif axis not in sizes:
                sizes[axis], first[axis] = length, name
    if found:
        raise ChunkwiseError(*found)
    return sizes
