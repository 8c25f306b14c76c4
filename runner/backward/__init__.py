"""The backward pass, derived: the reverse walk over a graph gives more graph, of the stages' vjps."""

from .derive import derive

__all__ = ["derive"]
