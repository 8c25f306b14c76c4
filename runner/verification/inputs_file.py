"""Tensors from a safetensors file in place of generated inputs.

A key names an input; ``PIPELINE.key`` comes before ``key``, so that one file can serve several pipelines. Scalar
entries named like params set them. ``expected.NAME`` is an output, ``expected.d_NAME`` the gradient of an input for the
incoming gradients ``cotangent.NAME``, as another implementation gave them: verification compares with these.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ..calling.check_call import io_dtype
from ..calling.function import Op
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..planning.dtypes import name_of, port_dtype


def refuse(message: str, help: str | None = None):
    raise ChunkwiseError(Diagnostic(codes.INPUTS_FILE, message, help=help))


@dataclass(frozen=True)
class InputsFile:
    """What a file says of a pipeline.

    inputs: by name, None where absent. io: their IO dtype. expected: what another implementation gave, outputs by
    name and gradients as ``d_<input>``. cotangents: the outputs' incoming gradients that these belong to.
    notes: what the file holds and is left out, with the reason.
    """

    inputs: Mapping[str, torch.Tensor | None]
    params: Mapping[str, float]
    io: torch.dtype
    expected: Mapping[str, torch.Tensor]
    cotangents: Mapping[str, torch.Tensor]
    notes: tuple[str, ...] = ()


def read_inputs(path: str, op: Op, io: torch.dtype | None, device) -> InputsFile:
    """io: cast the IO inputs to it; None leaves them as they are. What is expected are results for the numbers of the
    file: rounded ones have other results, by as much as the op is sensitive to its inputs, and finer arithmetic than
    the other implementation's shows that one's errors. So a cast leaves them out, and says so."""
    tensors = read_file(path)
    own = {name: own_entry(tensors, op.spec.name, name) for name in [*op.spec.inputs, *op.spec.params]}
    missing = [name for name, entry in op.spec.inputs.items() if own[name] is None and not entry.optional]
    if missing:
        refuse(f"{path} holds no {', '.join(missing)}", f"its keys are {', '.join(sorted(tensors))}")
    params = {name: own[name].item() for name in op.spec.params if own[name] is not None}
    inputs = {name: own[name] for name in op.spec.inputs}
    given = dtype_of(op, inputs)
    expected, cotangents = results_of(tensors, op, device)
    if io not in (None, given):
        note = f"what it expects is for its {name_of(given)} inputs and is not compared with {name_of(io)} results"
        return InputsFile(on_device(cast(op, inputs, io), device), params, io, {}, {}, (note,) * bool(expected))
    return InputsFile(on_device(inputs, device), params, given, expected, cotangents)


def results_of(tensors: Mapping, op: Op, device) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(what is expected, by result; the cotangents that it belongs to, by output)."""
    results = [*op.spec.outputs, *(f"d_{name}" for name in op.spec.inputs)]
    expected = {name: own_entry(tensors, op.spec.name, f"expected.{name}") for name in results}
    cotangents = {name: own_entry(tensors, op.spec.name, f"cotangent.{name}") for name in op.spec.outputs}
    return there(expected, device), there(cotangents, device)


def on_device(tensors: Mapping, device) -> dict[str, torch.Tensor | None]:
    return {name: x.to(device) if x is not None else None for name, x in tensors.items()}


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
    if not Path(path).is_file():
        raise ChunkwiseError(Diagnostic(codes.NO_FILE, f"there is no file {path}"))
    try:
        return load_file(path)
    except Exception as error:
        refuse(f"{path} is not a safetensors file: {error}")


def cast(op: Op, inputs: Mapping, io: torch.dtype) -> dict:
    graph = op.whole
    return {
        name: x.to(port_dtype(graph.inputs[name].dtype, io)) if x is not None and x.is_floating_point() else x
        for name, x in inputs.items()
    }


def dtype_of(op: Op, inputs: Mapping) -> torch.dtype:
    """The IO dtype of tensors that a file holds."""
    return io_dtype(op.whole, {name: x for name, x in inputs.items() if x is not None})
