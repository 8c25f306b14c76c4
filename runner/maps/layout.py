"""Where an expression's operands lie against its result, by the names of their axes.

Neighbouring axes that every operand has together, or lacks together, are one segment; a width of the model (K, V) at
the end is one by itself. The last segment makes the columns of a matrix, those before it the rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VARYING = frozenset({"B", "T", "N", "NT", "H", "HV"})
"""Axes that no kernel is compiled for."""


@dataclass(frozen=True)
class Layout:
    """axes: of the result. segments: its places, grouped. has: operand -> which segments it has."""

    axes: tuple[str, ...]
    segments: tuple[tuple[int, ...], ...]
    has: Mapping[str, tuple[bool, ...]]

    @property
    def reduced(self) -> tuple[str, ...]:
        """Operands whose gradients are sums."""
        return tuple(name for name, has in self.has.items() if not all(has))

    @property
    def fixed_columns(self) -> bool:
        """Whether the columns are a width of the model: kernels are compiled for it, and load whole vectors."""
        return len(self.segments) > 1 and VARYING.isdisjoint(self.names(self.segments[-1]))

    def names(self, places: Sequence[int]) -> list[str]:
        """The axes at some places of the result."""
        return [self.axes[place] for place in places]

    def missing(self, operand: str) -> tuple[int, ...]:
        """Dimensions of the result that an operand lacks."""
        return tuple(place for group, there in zip(self.segments, self.has[operand]) if not there for place in group)


def in_order(axes: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether axes stand in the order of the whole, each once."""
    places = [whole.index(axis) for axis in axes]
    return all(a < b for a, b in zip(places, places[1:]))


def layout_of(operands: Mapping[str, tuple[str, ...]]) -> Layout:
    """operands: the axes of each; the longest has those of all."""
    axes = max(operands.values(), key=len)
    member = [tuple(axis in each for each in operands.values()) for axis in axes]
    groups: list[list[int]] = []
    for place in range(len(axes)):
        own = place == len(axes) - 1 and axes[place] not in VARYING
        if groups and member[place] == member[groups[-1][-1]] and not own:
            groups[-1].append(place)
        else:
            groups.append([place])
    has = {name: tuple(axes[group[0]] in each for group in groups) for name, each in operands.items()}
    return Layout(axes, tuple(map(tuple, groups)), has)


LONG = frozenset({"B", "T", "N", "NT"})
"""Axes whose sums are split over programs; heads and widths are added up by one."""


def reductions(layout: Layout, operand: str) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]]:
    """How the terms of an operand's gradient, added up over the columns already where it lacks these, become the
    gradient: for each run of places that it lacks, the last first, (places before it, it, places after it, whether the
    sum is split)."""
    missing = set(layout.missing(operand))
    left = list(range(len(layout.axes)))
    if not layout.has[operand][-1]:
        left = [place for place in left if place not in layout.segments[-1]]
    found = []
    while missing & set(left):
        end = max(at for at, place in enumerate(left) if place in missing) + 1
        start = end
        while start and left[start - 1] in missing:
            start -= 1
        run = tuple(left[start:end])
        split = not LONG.isdisjoint(layout.names(run))
        found.append((tuple(left[:start]), run, tuple(left[end:]), split))
        left = left[:start] + left[end:]
    return found
