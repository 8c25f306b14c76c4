"""The backward pass, derived: the reverse walk over a graph gives more graph, of the stages' vjps."""

from .derive import derive, may_be_kept
from .gradient_stages import with_gradient_stages

__all__ = ["derive", "may_be_kept", "with_gradient_stages"]
