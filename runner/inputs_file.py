"""Tensors from a safetensors file in place of generated inputs.

A key names an input; ``PIPELINE.key`` comes before ``key``, so that one file can serve several pipelines. ``expected.NAME`` is an output
to compare with. Scalar entries named like params set them.
"""

from collections.abc import Mapping
from pathlib import Path

import torch

from . import codes
from .dtypes import port_dtype
from .errors import ChunkwiseError, Diagnostic
from .function import Op, io_dtype


def refuse(message: str, help: str | None = None):
    raise ChunkwiseError(Diagnostic(codes.INPUTS_FILE, message, help=help))


def read_inputs(path: str, op: Op, io: torch.dtype | None, device) -> tuple[dict, dict[str, float], dict]:
    """(inputs, params, expected outputs) from a file. io: cast the IO inputs to it; None leaves them as they are."""
    tensors = read_file(path)
    own = {name: own_entry(tensors, op.spec.name, name) for name in [*op.spec.inputs, *op.spec.params]}
    missing = [name for name, entry in op.spec.inputs.items() if own[name] is None and not entry.optional]
    if missing:
        refuse(f"{path} holds no {', '.join(missing)}", f"its keys are {', '.join(sorted(tensors))}")
    params = {name: own[name].item() for name in op.spec.params if own[name] is not None}
    inputs = {name: own[name] for name in op.spec.inputs}
    if io is not None:
        inputs = cast(op, inputs, io)
    inputs = {name: x.to(device) if x is not None else None for name, x in inputs.items()}
    expected = {name: own_entry(tensors, op.spec.name, f"expected.{name}") for name in op.spec.outputs}
    return inputs, params, {name: x.to(device) for name, x in expected.items() if x is not None}


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
