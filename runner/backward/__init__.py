"""The backward pass, derived: the reverse walk over a graph gives more graph, of the stages' vjps."""

from .derive import derive, may_be_kept

__all__ = ["derive", "may_be_kept"]
