"""The functions of definitions: how each is typed and what computes it on float64 tensors.

Inner axes are the last dimensions of a tensor, so every function here counts dimensions from the end.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch


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
}
"""How a function is typed -> that in words, for ``chunkwise explain definition``."""


@dataclass(frozen=True)
class Function:
    """rule: a key of RULES."""

    rule: str
    arity: int
    compute: Callable

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments as a file writes them."""
        if self.rule == "fill":
            return ("K", "V")
        if self.rule in ("reduce", "along"):
            return ("x", "axis=K")
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

DENSE = ("index", "masked_softmax", "masked_logsumexp", "gather", "topk")
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
