"""How large a gradient would be if its terms did not cancel: where they do, its rounding errors are measured against
that. One inner product of two states can decide a whole tensor, and be next to nothing by chance."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch.overrides import TorchFunctionMode

from ...stages import _gradient_sum
from ..graphs.graph import Node
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
    return rms(run_signed(subject, case, port, seed) for seed in range(DRAWS))


def rms(draws: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(draws)).square().mean(0).sqrt()


def run_signed(subject: Subject, case: StageCase, port: str, seed: int) -> torch.Tensor:
    return run_in_mode(subject, case, RandomSigns(seed))[port]


def run_in_mode(subject: Subject, case: StageCase, mode) -> dict[str, torch.Tensor]:
    return run_reference(case.node, case.inputs, keywords(subject, case.node), subject.seqs, torch.float64, mode)


def is_gradient(node: Node) -> bool:
    """Whether it is a stage's gradient, or one of several stages that are."""
    return node.phase == "backward" and node.stage.reference is not _gradient_sum.reference


def uncancelled_gradient(subject: Subject, value: str) -> torch.Tensor | None:
    """The same of one of the op's gradients; None where it comes in from outside."""
    makers = {name: node for node in subject.graph.nodes.values() for name in node.outputs.values()}
    if value not in makers:
        return None
    exact = staged_values(subject, torch.float64)
    return rms(drawn(subject, makers, exact, value, seed) for seed in range(DRAWS))


def drawn(
    subject: Subject, makers: Mapping[str, Node], exact: Mapping[str, torch.Tensor], value: str, seed: int
) -> torch.Tensor:
    """A gradient whose terms have random signs. A sum is that of its contributions, each drawn by itself. A vjp without
    matrix products, such as an expression's or a gate's, is as wrong as what comes into it, and passes that on: errors
    of neighbours that it adds up stay what they are to each other. Products are where rounding begins anew."""
    node = makers.get(value)
    if node and node.stage.reference is _gradient_sum.reference:
        return sum(drawn(subject, makers, exact, name, seed) for name in node.inputs.values())
    if node is None or not is_gradient(node):
        return exact[value].double()
    case = stage_case(subject, node, exact)
    port = next(port for port, name in node.outputs.items() if name == value)
    cotangents = {port: name for port, name in node.inputs.items() if port.startswith("d_") and name in makers}
    if not (node.stage.is_vjp and cotangents) or takes_products(subject, case):
        return run_signed(subject, case, port, DRAWS * list(makers).index(value) + seed)
    came = {port: drawn(subject, makers, exact, name, seed) for port, name in cotangents.items()}
    return run_in_mode(subject, replace(case, inputs={**case.inputs, **came}), None)[port]


class SeesProducts(TorchFunctionMode):
    seen = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen |= func in DOTS
        return func(*args, **(kwargs or {}))


def takes_products(subject: Subject, case: StageCase) -> bool:
    """Whether a stage's reference multiplies matrices."""
    mode = SeesProducts()
    run_in_mode(subject, case, mode)
    return mode.seen
