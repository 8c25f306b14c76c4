"""How large a gradient would be if its terms did not cancel: where they do, its rounding errors are measured against
that. One inner product of two states can decide a whole tensor, and be next to nothing by chance."""

from collections.abc import Mapping

import torch
from torch.overrides import TorchFunctionMode

from ...stages import _gradient_sum
from ..graphs.graph import Node
from ..maps.map_stage import is_map
from ..planning.references import run_reference
from .rounding import DOTS, SUMS
from .staged import StageCase, Subject, keywords, stage_case, staged_values

DRAWS = 8


class RandomSigns(TorchFunctionMode):
    """Gives each term of a matrix product or sum a sign by chance: what comes out is as large as the root of the sum
    of the terms' squares."""

    def __init__(self, seed: int):
        super().__init__()
        self.seed, self.generators = seed, {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in DOTS | SUMS:
            args = self.flipped(args)
        return func(*args, **(kwargs or {}))

    def flipped(self, args: tuple) -> tuple:
        """The arguments with the first tensor's numbers under random signs; einsum may have its tensors in a list."""
        place = next(at for at, arg in enumerate(args) if isinstance(arg, (torch.Tensor, list, tuple)))
        first = args[place]
        first = self.signed(first) if isinstance(first, torch.Tensor) else (self.signed(first[0]), *first[1:])
        return (*args[:place], first, *args[place + 1 :])

    def signed(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        if x.device not in self.generators:
            self.generators[x.device] = torch.Generator(x.device).manual_seed(self.seed)
        positive = torch.rand(x.shape, generator=self.generators[x.device], device=x.device) < 0.5
        return torch.where(positive, x, -x)


def uncancelled(
    subject: Subject, case: StageCase, port: str, cotangents: Mapping[str, torch.Tensor] | None = None
) -> torch.Tensor:
    """The rms, number by number, of an output of a stage's reference in float64 over some draws of random signs.
    cotangents: how large some that come in would be if they had not cancelled."""
    node, named = case.node, keywords(subject, case.node)
    draws = []
    for seed in range(DRAWS):
        signs = RandomSigns(seed)
        inputs = {**case.inputs, **{name: signs.signed(x) for name, x in (cotangents or {}).items()}}
        draws.append(run_reference(node, inputs, named, subject.seqs, torch.float64, signs)[port])
    return torch.stack(draws).square().mean(0).sqrt()


def is_gradient(node: Node) -> bool:
    """Whether it is a stage's gradient, or one of several stages that are."""
    return node.phase == "backward" and node.stage.reference is not _gradient_sum.reference


def uncancelled_gradient(subject: Subject, value: str) -> torch.Tensor | None:
    """The same of one of the op's gradients; None where it comes in from outside."""
    makers = {name: node for node in subject.graph.nodes.values() for name in node.outputs.values()}
    return made_uncancelled(subject, makers, staged_values(subject, torch.float64), value) if value in makers else None


def made_uncancelled(
    subject: Subject, makers: Mapping[str, Node], exact: Mapping[str, torch.Tensor], value: str
) -> torch.Tensor:
    """By the vjp that makes it; a sum by its contributions. An expression's gradient is as wrong as what comes into it,
    number by number, and is followed further up; a stage's own products are where rounding begins anew."""
    node = makers.get(value)
    if node and node.stage.reference is _gradient_sum.reference:
        parts = [made_uncancelled(subject, makers, exact, name) for name in node.inputs.values()]
        return torch.stack(parts).square().sum(0).sqrt()
    if node is None or not is_gradient(node):
        return exact[value].double()
    came = {}
    if node.stage.is_vjp and is_map(node.stage.reference.stage):
        came["d_y"] = made_uncancelled(subject, makers, exact, node.inputs["d_y"])
    port = next(port for port, name in node.outputs.items() if name == value)
    return uncancelled(subject, stage_case(subject, node, exact), port, came)
