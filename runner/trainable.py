"""Which inputs of a call gradients can be asked for."""

from . import codes
from .errors import ChunkwiseError


def trainable(call) -> list[str]:
    """The floating-point inputs that are there, less those that no stage has a gradient for (fixed slopes)."""
    return [name for name, x in call.tensors.items() if x is not None and x.is_floating_point() and has_gradient(call, name)]


def has_gradient(call, name: str) -> bool:
    try:
        call.joint([name], call.wanted)
    except ChunkwiseError as error:
        if all(each.code == codes.NO_GRADIENT for each in error.diagnostics):
            return False
        raise
    return True
