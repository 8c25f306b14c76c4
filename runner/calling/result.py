"""What a call returns: a named tuple of its outputs, one type for each pipeline."""

from collections import namedtuple
from functools import cache


@cache
def result_type(name: str, outputs: tuple[str, ...]) -> type:
    """The named tuple. It is no attribute of a module: what is pickled is what makes it."""
    made = namedtuple(name, outputs)
    made.__reduce__ = lambda self: (remade, (name, outputs, *self))
    return made


def remade(name: str, outputs: tuple[str, ...], *values):
    """An unpickled result."""
    return result_type(name, outputs)(*values)
