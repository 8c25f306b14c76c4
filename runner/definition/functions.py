"""The functions of definitions: how each is typed and what computes it on float64 tensors.

Inner axes are the last dimensions of a tensor, so every function here counts dimensions from the end.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ...stages import _dropout


def is_number(x) -> bool:
    return not isinstance(x, torch.Tensor)


def softplus(x):
    """log(1 + e^x); torch's own gives x from 20 on, 2e-9 off in float64."""
    return torch.logaddexp(x, torch.zeros_like(x))


def maximum(a, b):
    if is_number(b):
        return torch.clamp(a, min=b)
    return torch.clamp(b, min=a) if is_number(a) else torch.maximum(a, b)


def minimum(a, b):
    if is_number(b):
        return torch.clamp(a, max=b)
    return torch.clamp(b, max=a) if is_number(a) else torch.minimum(a, b)


def clamp(x, low, high):
    return minimum(maximum(x, low), high)


def where(condition, a, b):
    if is_number(condition):
        return a if condition else b
    if is_number(a) and is_number(b):
        a = torch.full_like(condition, a, dtype=torch.float64)
    return torch.where(condition, a, b)


def logsigmoid(x):
    return -softplus(-x)


def transpose(x):
    return x.mT


def masked_weights(s, keep, dim):
    """(exp(s - m) where keep, else 0; their sum over dim; m), m the largest kept one, 0 where none is."""
    s = torch.where(keep, s, -math.inf)
    m = s.detach().amax(dim, keepdim=True) if s.shape[dim] else s.detach().sum(dim, keepdim=True)
    m = torch.where(m == -math.inf, 0.0, m)
    weights = torch.exp(s - m)
    return weights, weights.sum(dim, keepdim=True), m


def masked_softmax(s, keep, dim):
    """Softmax over the kept numbers; 0 where none is kept, with gradient 0."""
    weights, total, _ = masked_weights(s, keep, dim)
    return weights / torch.where(total == 0, 1.0, total)


def masked_logsumexp(s, keep, dim):
    """log of the sum of exp over the kept numbers; -inf where none is kept, with gradient 0."""
    _, total, m = masked_weights(s, keep, dim)
    return torch.where(total == 0, -math.inf, m + torch.log(torch.where(total == 0, 1.0, total))).squeeze(dim)


def dropout(x, p, seed, batch, head, row, key):
    """x / (1 - p) where its place is kept, else 0: by the bits that the stages have."""
    if p == 0:
        return x
    places = (torch.as_tensor(each, device=x.device).long() for each in (batch, head, row, key))
    return torch.where(_dropout.kept(p, seed, *places), x * _dropout.kept_scale(p), 0.0)


def norm(x, dim):
    return torch.linalg.vector_norm(x, dim=dim)


RULES = {
    "map": "number by number, over equal axes or scalars",
    "select": "number by number: the second where the first, a comparison, holds, else the third",
    "reduce": "over one axis, which goes",
    "along": "over one axis, which stays",
    "outer": "every product of a number of a and one of b, over the axes of a and then those of b",
    "diag": "a vector as the diagonal of a matrix",
    "transpose": "a matrix with its two axes exchanged",
    "fill": "one number over the inner axes that are named",
    "index": "the places 0, 1, ... of an axis",
    "masked along": "over one axis, which stays, where the second, a comparison, holds; all 0 where it never does",
    "masked reduce": "over one axis, which goes, where the second, a comparison, holds; -inf where it never does",
    "pick": "of x along one axis, the numbers at the places that the second names; 0 at a place below 0",
    "places": "of x along one axis, the places of the largest numbers, largest first and of two alike the lower one "
    "first, over the axis that is named; -1 where there are fewer numbers",
}
"""How a function is typed -> that in words, for ``chunkwise explain definition``."""


SHOWN = {
    "fill": ("K", "V"), "reduce": ("x", "axis=K"), "along": ("x", "axis=K"), "index": ("Sk",),
    "masked along": ("s", "keep", "axis=Sk"), "masked reduce": ("s", "keep", "axis=Sk"),
    "pick": ("x", "places", "axis=Sk"), "places": ("x", "TOP", "axis=Sk"),
}  # fmt: skip
"""Rule -> the arguments of its functions, where the names that compute them would not say it."""


@dataclass(frozen=True)
class Function:
    """rule: a key of RULES."""

    rule: str
    arity: int
    compute: Callable

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments as a file writes them."""
        if self.rule in SHOWN:
            return SHOWN[self.rule]
        if self.compute.__module__ == __name__:
            return tuple(inspect.signature(self.compute).parameters)
        return ("x",) if self.arity == 1 else ("a", "b")


_MAPS = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log1p": torch.log1p,
    "log2": torch.log2, "sqrt": torch.sqrt, "abs": torch.abs, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "logsigmoid": logsigmoid, "softplus": softplus, "silu": torch.nn.functional.silu, "relu": torch.relu,
    "elu": torch.nn.functional.elu,
}  # fmt: skip

FUNCTIONS: Mapping[str, Function] = {
    **{name: Function("map", 1, compute) for name, compute in _MAPS.items()},
    "minimum": Function("map", 2, minimum),
    "maximum": Function("map", 2, maximum),
    "clamp": Function("map", 3, clamp),
    "where": Function("select", 3, where),
    "sum": Function("reduce", 1, torch.sum),
    "mean": Function("reduce", 1, torch.mean),
    "max": Function("reduce", 1, torch.amax),
    "min": Function("reduce", 1, torch.amin),
    "norm": Function("reduce", 1, norm),
    "logsumexp": Function("reduce", 1, torch.logsumexp),
    "softmax": Function("along", 1, torch.softmax),
    "outer": Function("outer", 2, torch.mul),
    "diag": Function("diag", 1, torch.diag_embed),
    "transpose": Function("transpose", 1, transpose),
    "ones": Function("fill", 1, torch.full),
    "zeros": Function("fill", 1, torch.full),
}

DENSE: Mapping[str, Function] = {
    "index": Function("index", 1, torch.arange),
    "masked_softmax": Function("masked along", 2, masked_softmax),
    "masked_logsumexp": Function("masked reduce", 2, masked_logsumexp),
    "dropout": Function("map", 7, dropout),
    "gather": Function("pick", 2, torch.take_along_dim),
    "topk": Function("places", 2, torch.topk),
}
"""Functions of the dense form alone."""


def of_numbers(name: str, values) -> float:
    """A map of plain numbers, computed in float64."""
    tensors = [torch.tensor(float(value), dtype=torch.float64) for value in values]
    if name == "where":
        return values[1] if values[0] else values[2]
    result = FUNCTIONS[name].compute(*tensors).item()
    if math.isnan(result) or math.isinf(result):
        raise ValueError(f"{name} is not defined here")
    return result
