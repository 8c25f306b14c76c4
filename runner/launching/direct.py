"""Triton's launcher without what its Python part does at every launch: arguments in the order of its part in C."""

from collections.abc import Callable, Sequence
from copy import copy
from operator import itemgetter
from typing import Any

Pick = Callable[[list], tuple]


class Cell(int):
    """The place of an argument, which stands for the argument until it is known."""


def direct(launcher: Callable, arguments: Sequence[Cell], cell: Callable[[Any], int]) -> tuple[Callable, Pick]:
    """(what is to be called, cells -> what with). arguments: of the launcher. cell: makes one for a constant.

    What the launcher would hand on is found out by asking it once; it is called itself where it has no such part, or
    hands on memory that is made at every launch.
    """
    if not hasattr(launcher, "launch") or any(needs_memory(launcher)):
        return launcher, itemgetter(*arguments)
    asked, found = copy(launcher), []
    asked.launch = lambda *handed: found.append(handed)
    asked(*arguments)
    return launcher.launch, pick(found[0], cell)


def needs_memory(launcher) -> list[int]:
    """Bytes of each kind of memory that a launcher makes for every program of a launch."""
    return [size for name, size in vars(launcher).items() if name.endswith("scratch_size")]


def pick(handed: tuple, cell: Callable[[Any], int]) -> Pick:
    """The last one may be a tuple of arguments: so has Triton 3.7 them."""
    if handed and isinstance(handed[-1], tuple):
        head, rest = pick(handed[:-1], cell), pick(handed[-1], cell)
        return lambda cells: (*head(cells), rest(cells))
    places = [x if isinstance(x, Cell) else cell(x) for x in handed]
    return itemgetter(*places) if len(places) > 1 else lambda cells: tuple([cells[place] for place in places])
