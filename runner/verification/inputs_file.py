"""Tensors from a safetensors file in place of generated inputs.

A key names an input; ``PIPELINE.key`` comes before ``key``, so that one file can serve several pipelines. Scalar
entries named like params set them. ``expected.NAME`` is an output, ``expected.d_NAME`` the gradient of an input for the
incoming gradients ``cotangent.NAME``, as another implementation gave them: verification compares with these.
``cu_seqlens`` packs the sequences. A name that the pipeline does not have is refused, unless the file is one of
several pipelines and the name is no slip of the pen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ...stages._contract import HELD
from ..calling.check_call import io_dtype
from ..calling.function import Op
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.hints import meant
from ..loading.spec import PipelineSpec
from ..planning.dtypes import name_of, port_dtype
from ..planning.sequences import lengths_of


def refuse(message: str, help: str | None = None):
    raise ChunkwiseError(Diagnostic(codes.INPUTS_FILE, message, help=help))


@dataclass(frozen=True)
class InputsFile:
    """What a file says of a pipeline.

    inputs: by name, None where absent. io: their IO dtype. expected: what another implementation gave, outputs by
    name and gradients as ``d_<input>``. cotangents: the outputs' incoming gradients that these belong to.
    seqlens: of packed sequences.
    notes: what the file holds and is left out, with the reason.
    """

    inputs: Mapping[str, torch.Tensor | None]
    params: Mapping[str, float]
    io: torch.dtype
    expected: Mapping[str, torch.Tensor]
    cotangents: Mapping[str, torch.Tensor]
    seqlens: tuple[int, ...] | None = None
    notes: tuple[str, ...] = ()


def read_inputs(path: str, op: Op, io: torch.dtype | None, device, whole: PipelineSpec) -> InputsFile:
    """whole: the pipeline that the file is for; op may be a part of it. io: cast the IO inputs to it; None leaves them
    as they are. What is expected are results for the numbers of the file: rounded ones have other results, by as much
    as the op is sensitive to its inputs, and finer arithmetic than the other implementation's shows that one's errors.
    So a cast leaves them out, and says so."""
    tensors = read_file(path)
    check_names(path, tensors, whole)
    own = {name: own_entry(tensors, op.spec.name, name) for name in [*op.spec.inputs, *op.spec.params]}
    missing = [name for name, entry in op.spec.inputs.items() if own[name] is None and not entry.optional]
    if missing:
        refuse(f"{path} holds no {', '.join(missing)}", f"its keys are {', '.join(sorted(tensors))}")
    params = {name: number(path, name, own[name]) for name in op.spec.params if own[name] is not None}
    cu_seqlens = own_entry(tensors, op.spec.name, "cu_seqlens")
    seqlens = None if cu_seqlens is None else lengths_of(cu_seqlens)
    inputs = {name: own[name] for name in op.spec.inputs}
    given = dtype_of(op, inputs)
    expected, cotangents = results_of(tensors, op, device)
    if io not in (None, given):
        note = f"what it expects is for its {name_of(given)} inputs and is not compared with {name_of(io)} results"
        notes = (note,) * bool(expected)
        return InputsFile(on_device(cast(op, inputs, io), device), params, io, {}, {}, seqlens, notes)
    return InputsFile(on_device(inputs, device), params, given, expected, cotangents, seqlens)


def check_names(path: str, tensors: Iterable[str], spec: PipelineSpec) -> None:
    """Refuses entries that say something of this pipeline and name nothing that it has."""
    inputs = [*spec.inputs, *spec.params, "cu_seqlens"]
    expected = [f"expected.{name}" for name in [*spec.outputs, *(f"d_{name}" for name in spec.inputs)]]
    known = [*inputs, *expected, *(f"cotangent.{name}" for name in spec.outputs)]
    shared = any(key.startswith(f"{spec.name}.") for key in tensors)
    for key in sorted(tensors):
        name = key.removeprefix(f"{spec.name}.")
        near = meant(name, known) or meant(key, [f"{spec.name}.{each}" for each in known])
        others = name == key and (shared or "." in key and key.partition(".")[0] not in ("expected", "cotangent"))
        if name not in known and (near or not others):
            help = f"did you mean {near}?" if near else f"{spec.name} has {', '.join(inputs)}"
            refuse(f"{path} holds {key}, which {spec.name} does not have", help)


def number(path: str, name: str, x: torch.Tensor) -> float:
    if x.numel() != 1:
        refuse(f"{path}: the param {name} is a number, and the file holds a tensor of the shape {list(x.shape)}")
    return x.item()


def results_of(tensors: Mapping, op: Op, device) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(what is expected, by result; the cotangents that it belongs to, by output)."""
    results = [*op.spec.outputs, *(f"d_{name}" for name in op.spec.inputs)]
    expected = {name: own_entry(tensors, op.spec.name, f"expected.{name}") for name in results}
    cotangents = {name: own_entry(tensors, op.spec.name, f"cotangent.{name}") for name in op.spec.outputs}
    return there(expected, device), there(cotangents, device)


def on_device(tensors: Mapping, device) -> dict[str, torch.Tensor | None]:
    """Copies: in the file a tensor starts wherever the one before it ends, and a state is written over."""
    return {name: x.to(device, copy=True) if x is not None else None for name, x in tensors.items()}


def there(tensors: Mapping, device) -> dict[str, torch.Tensor]:
    return {name: x for name, x in on_device(tensors, device).items() if x is not None}


def own_entry(tensors: Mapping, pipeline: str, name: str) -> torch.Tensor | None:
    return tensors.get(f"{pipeline}.{name}", tensors.get(name))


def read_file(path: str) -> dict[str, torch.Tensor]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        message = "reading an inputs file needs the safetensors package"
        raise ChunkwiseError(Diagnostic(codes.BACKEND, message, help="pip install safetensors")) from None
    if Path(path).is_dir():
        raise ChunkwiseError(Diagnostic(codes.NO_FILE, f"{path} is a folder", help="name the file in it"))
    if not Path(path).exists():
        raise ChunkwiseError(Diagnostic(codes.NO_FILE, f"there is no file {path}"))
    if not Path(path).is_file():
        raise ChunkwiseError(Diagnostic(codes.NO_FILE, f"{path} is no regular file, which safetensors maps"))
    try:
        return load_file(path)
    except Exception as error:
        refuse(f"{path} is not a safetensors file: {error}")


def cast(op: Op, inputs: Mapping, io: torch.dtype) -> dict:
    dtypes = {name: value.dtype for name, value in op.whole.inputs.items()}

    def is_cast(name: str, x: torch.Tensor | None) -> bool:
        return x is not None and x.is_floating_point() and dtypes[name] not in HELD

    return {name: x.to(port_dtype(dtypes[name], io)) if is_cast(name, x) else x for name, x in inputs.items()}


def dtype_of(op: Op, inputs: Mapping) -> torch.dtype:
    """The IO dtype of tensors that a file holds."""
    return io_dtype(op.whole, {name: x for name, x in inputs.items() if x is not None})
