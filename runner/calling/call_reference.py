"""A stage's reference, called; what is wrong with a stage file that is not ours is said as its author needs it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Node
from ..stage_files.own_code import own_code
from ..stage_files.stage_source import StageSource


def call_reference(
    node: Node, inputs: Mapping, named: Mapping, sizes: Mapping[str, float]
) -> dict[str, torch.Tensor | None]:
    """The reference's outputs by name. named: the axes and params that it takes, and what a vjp needs. sizes: of every
    axis of the stage, under the stage's own names."""
    file = node.stage.path
    if node.stage.shipped:
        return node.stage.reference(**inputs, **named)
    what = function_of(node)
    inputs = {name: x.clone() if x is not None and x.is_inference() else x for name, x in inputs.items()}
    versions = versions_of(inputs)
    with own_code(node.stage, f"{what} of", lambda source: source.function(what), node.id):
        outputs = node.stage.reference(**inputs, **named)
    for name, version in versions_of(inputs).items():
        if version != versions[name]:
            raise ChunkwiseError(written_error(node, file, name))
    if wrong := result_error(node, file, outputs, sizes):
        raise ChunkwiseError(wrong)
    return outputs


def versions_of(inputs: Mapping) -> dict[str, int]:
    """How often PyTorch has written each tensor. Inference tensors do not count it: a reference gets copies of them."""
    return {name: x._version for name, x in inputs.items() if x is not None and not x.is_inference()}


def written_error(node: Node, file: Path, name: str) -> Diagnostic:
    what = function_of(node)
    message = f"{node.id}: {what} of {file.stem} writes its input {name}, and inputs are never written"
    help = f"make a new tensor: {name} * 2 in place of {name}.mul_(2), or start with {name} = {name}.clone()"
    return Diagnostic(codes.STAGE_FAILED, message, StageSource(file).argument(what, name), help=help)


def function_of(node: Node) -> str:
    """vjp, or reference: the gradient of a stage without a vjp is autograd through its reference."""
    return "vjp" if node.stage.is_vjp and node.stage.reference.stage.vjp else "reference"


def result_error(node: Node, file: Path, outputs, sizes: Mapping[str, float]) -> Diagnostic | None:
    """What is wrong with a result, if anything; only then is the stage file read."""
    fault = result_fault(node, outputs, sizes)
    if fault is None:
        return None
    said, help = fault
    what = f"{node.id}: {function_of(node)} of {file.stem}"
    mark = StageSource(file).function(function_of(node))
    return Diagnostic(codes.STAGE_FAILED, f"{what} gives {said}", mark, help=help)


def result_fault(node: Node, outputs, sizes: Mapping[str, float]) -> tuple[str, str | None] | None:
    """What is given, and help: a result that is no mapping, lacks an output that is wanted, or holds something that is
    no tensor or has another shape."""
    if not isinstance(outputs, Mapping):
        example = ", ".join(f'"{shown(node, name)}": {name}' for name in node.outputs)
        return f"a {type(outputs).__name__}, no mapping", f"return {{{example}}}"
    contract = node.stage.contract.outputs
    for name in node.outputs:
        x = outputs.get(name)
        if x is None and (node.stage.is_vjp or not contract[name].optional):
            return missing(node, name, outputs)
        if x is not None and not isinstance(x, torch.Tensor):
            return f"a {type(x).__name__} for {shown(node, name)}", None
        wanted = [int(axis) if axis.isdigit() else sizes[axis] for axis in contract[name].axes]
        if x is not None and list(x.shape) != wanted:
            said = f"{shown(node, name)} [{contract[name].shape}] the shape {list(x.shape)}"
            return said, f"these sizes make it {wanted}"
    if unknown := [name for name in outputs if name not in contract]:
        return f"{shown(node, unknown[0])}, which the contract does not have", f"it has {listed(node, contract)}"
    return None


def missing(node: Node, name: str, outputs: Mapping) -> tuple[str, str | None]:
    """A result that is not there, or None: whoever reads it would read memory that nobody has written."""
    if name not in outputs:
        return f"no {shown(node, name)}", given(node, outputs)
    why = "needs asks for" if node.stage.is_vjp else "the contract does not mark optional"
    zeros = "for a gradient that is 0, give zeros: torch.zeros_like" if node.stage.is_vjp else None
    return f"None for {shown(node, name)}, which {why}", zeros


def shown(node: Node, name: str) -> str:
    """An output as the stage's author calls it: a vjp names the inputs whose gradients it gives."""
    return str(name).removeprefix("d_") if node.stage.is_vjp else str(name)


def given(node: Node, outputs: Mapping) -> str | None:
    return f"it gives {listed(node, outputs)}" if outputs else None


def listed(node: Node, names: Iterable) -> str:
    return ", ".join(shown(node, name) for name in names)
