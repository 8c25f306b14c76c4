"""How large a gradient would be if its terms did not cancel: where they do, its rounding errors are measured against
that. One inner product of two states can decide a whole tensor, and be next to nothing by chance."""

import torch
from torch.overrides import TorchFunctionMode

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


def uncancelled(subject: Subject, case: StageCase, port: str) -> torch.Tensor:
    """The rms, number by number, of an output of a stage's reference in float64 over some draws of random signs."""
    node, named = case.node, keywords(subject, case.node)
    draws = [
        run_reference(node, case.inputs, named, subject.seqs, torch.float64, RandomSigns(seed))[port]
        for seed in range(DRAWS)
    ]
    return torch.stack(draws).square().mean(0).sqrt()


def uncancelled_gradient(subject: Subject, value: str) -> torch.Tensor | None:
    """The same of one of the op's gradients, by the vjp that makes it; None where no vjp does."""
    for node in subject.graph.nodes.values():
        for port, name in node.outputs.items():
            if name == value and node.stage.is_vjp:
                return uncancelled(subject, stage_case(subject, node, staged_values(subject, torch.float64)), port)
    return None
