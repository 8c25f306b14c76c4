"""The whole op as its user calls it, forward alone or with its gradients: ours or a peer's, on the same tensors."""

from collections.abc import Callable, Mapping, Sequence

import torch

from ..reporting.clocks import Run
from .case import Case, InputSet

Forward = Callable[[InputSet], Mapping[str, torch.Tensor | None]]
"""Outputs by name, of the tensors of a set."""


def ours(case: Case) -> Forward:
    return lambda given: case.op(**given.inputs, seqlens=case.seqlens, outputs=case.outputs)._asdict()


def run_once(forward: Forward, given: InputSet) -> dict[str, torch.Tensor | None]:
    """Outputs by name; with cotangents also gradients, as ``d_<input>``, None where the function gives none."""
    if given.cotangents is None:
        with torch.no_grad():
            return dict(forward(given))
    outputs = dict(forward(given))
    reached = [name for name in given.cotangents if outputs.get(name) is not None and outputs[name].requires_grad]
    ends = [outputs[name] for name in reached]
    come_in = [given.cotangents[name].to(outputs[name].dtype) for name in reached]
    found = torch.autograd.grad(ends, [given.inputs[name] for name in given.trainable], come_in, allow_unused=True)
    return outputs | {f"d_{name}": x for name, x in zip(given.trainable, found)}


def backward_of_pytorch(device: torch.device) -> None:
    """What PyTorch imports for the first backward pass of a process, 0.3 s and more: no op's own first call."""
    x = torch.ones(1, device=device, requires_grad=True)
    torch.autograd.grad([2 * x], [x], [torch.ones_like(x)])


def turns(forward: Forward, sets: Sequence[InputSet]) -> Run:
    """A run of the function on the set whose turn it is."""
    return lambda number: run_once(forward, sets[number % len(sets)])
