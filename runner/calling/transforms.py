"""PyTorch's function transforms, which an op is refused under: what they would need is not derived."""

from collections.abc import Iterable

import torch
from torch.autograd import forward_ad

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic

REVERSE = "torch.autograd.grad and backward() give the gradients"
FORWARD = f"{REVERSE}; there is no forward mode"
TRANSFORMS = {
    "Grad": ("torch.func.grad, vjp or jacrev", REVERSE),
    "Jvp": ("torch.func.jvp or jacfwd", FORWARD),
    "Vmap": ("torch.vmap", "fold the mapped axis into B, or pack the sequences with seqlens"),
    "Functionalize": ("torch.func.functionalize", "torch.compile and torch.export take the op as it is"),
}
"""PyTorch's name of the innermost transform -> what the user called, and what to use."""


def refuse_transforms(name: str, given: Iterable) -> None:
    """Raises ChunkwiseError under torch.func, and where a tensor has a tangent: a kernel would drop it in silence."""
    innermost = torch._C._functorch.peek_interpreter_stack()
    if innermost is not None:
        called, help = TRANSFORMS[innermost.key().name]
    elif forward_ad._current_level >= 0 and any(map(has_tangent, given)):
        called, help = "torch.autograd.forward_ad", FORWARD
    else:
        return
    raise ChunkwiseError(Diagnostic(codes.TRANSFORM, f"{name} was called under {called}", help=help))


def refuse_batched(name: str, cotangents: Iterable[torch.Tensor | None]) -> None:
    """Raises ChunkwiseError where autograd maps one backward pass over a batch of cotangents, or one has a tangent."""
    batched = torch._C._functorch.is_legacy_batchedtensor
    if any([x is not None and batched(x) for x in cotangents]):
        message = f"the backward pass of {name} was called with is_grads_batched or vectorize, which is a vmap"
        raise ChunkwiseError(Diagnostic(codes.TRANSFORM, message, help="call backward once for each cotangent"))
    if forward_ad._current_level >= 0 and any(map(has_tangent, cotangents)):
        message = f"the backward pass of {name} was called under torch.autograd.forward_ad"
        raise ChunkwiseError(Diagnostic(codes.TRANSFORM, message, help=FORWARD))


def has_tangent(x) -> bool:
    return isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None
