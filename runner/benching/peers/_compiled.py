"""A function under torch.compile that is compiled for every shape, or fails: PyTorch leaves it uncompiled in silence
once it has recompiled a few times."""

from collections.abc import Callable
from contextlib import nullcontext

import torch

MANY = 1 << 16
"""Shapes, and whatever else a compiled function depends on."""


def always_compiled(function: Callable, backend: str | Callable = "inductor") -> Callable:
    """One that compiles anew for each shape and each set of tensors that need gradients."""
    compiled, known = torch.compile(function, dynamic=False, backend=backend), set()

    def call(*tensors: torch.Tensor, **keywords):
        asked = (torch.is_grad_enabled(), *((x.shape, x.dtype, x.requires_grad) for x in tensors))
        with nullcontext() if asked in known else without_limit():
            found = compiled(*tensors, **keywords)
        known.add(asked)
        return found

    return call


def without_limit():
    limits = dict(recompile_limit=MANY, accumulated_recompile_limit=MANY, fail_on_recompile_limit_hit=True)
    return torch._dynamo.config.patch(**limits)
