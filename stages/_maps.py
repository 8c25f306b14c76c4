"""The functions of expressions in edges on tensors, under the names that kernels/_maps.py has on tiles.

Expressions are written out by the runner (runner/maps/) as the same lines over these and over those.
"""

import torch


def exp(x):
    return torch.exp(x)


def exp2(x):
    return torch.exp2(x)


def expm1(x):
    return torch.expm1(x)


def log(x):
    return torch.log(x)


def log1p(x):
    return torch.log1p(x)


def log2(x):
    return torch.log2(x)


def sqrt(x):
    return torch.sqrt(x)


def abs(x):
    return torch.abs(x)


def tanh(x):
    return torch.tanh(x)


def sigmoid(x):
    return torch.sigmoid(x)


def softplus(x):
    """log(1 + exp(x))."""
    return torch.logaddexp(x, torch.zeros_like(x))


def logsigmoid(x):
    return -softplus(-x)


def silu(x):
    return x * torch.sigmoid(x)


def relu(x):
    return torch.relu(x)


def elu(x):
    """x above 0, exp(x) - 1 below."""
    return torch.where(x > 0, x, torch.expm1(torch.clamp(x, max=0)))


def elu_plus_1(x):
    """x + 1 above 0, exp(x) below: no digit of it is lost in -1 + 1."""
    return torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0)))


def power(x, exponent):
    return torch.pow(x, exponent)


def divide(a, b):
    return a / b


def minimum(a, b):
    return torch.minimum(*pair(a, b))


def maximum(a, b):
    return torch.maximum(*pair(a, b))


def where(condition, a, b):
    return torch.where(condition, *pair(a, b)) if is_tensor(a) or is_tensor(b) else torch.where(condition, a, b)


def is_tensor(x):
    return isinstance(x, torch.Tensor)


def pair(a, b):
    """Both as tensors; a number takes the other's dtype."""
    like = a if is_tensor(a) else b
    return tuple(x if is_tensor(x) else torch.full((), x, dtype=like.dtype, device=like.device) for x in (a, b))


def full(value, like):
    """A number as a tensor of like's dtype."""
    return torch.full((), value, dtype=like.dtype, device=like.device)
