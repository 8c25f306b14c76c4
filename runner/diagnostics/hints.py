"""What someone probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 80
"""Longer names are no slip of the pen, and comparing them costs quadratic time."""
LONG = 8
"""From here on a slip of the pen may be two characters."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of names that looks most like name, or None if none is near. Case does not count."""
    found = nearby(name, names, 1)
    return found[0] if found else None


def meant(name: str, names: Iterable[str]) -> str | None:
    """The one of names that name is a slip of the pen of, None where there is none, or another one is as near.

    A slip is another case, or one character too many, missing, wrong or swapped with its neighbour; two in names of
    LONG characters and more; never the whole name.
    """
    if len(name) > LONGEST:
        return None
    allowed = min(2 if len(name) >= LONG else 1, len(name) - 1)
    found = sorted((edits(name.lower(), each.lower(), allowed), each) for each in set(names))
    close = [each for cost, each in found if cost <= allowed and cost == found[0][0]]
    return close[0] if len(close) == 1 else None


def edits(a: str, b: str, most: int) -> int:
    """Characters to insert, remove, replace or swap with their neighbours to make b of a; past most, any number."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    before, row = [], list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, last, row = row, before, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and (x, a[i - 2]) == (b[j - 2], y):
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def nearby(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Those of names that look most like name, the nearest first."""
    if len(name) > LONGEST:
        return []
    by_lower = {each.lower(): each for each in sorted(names, reverse=True)}
    return [by_lower[each] for each in get_close_matches(name.lower(), sorted(by_lower), n=most, cutoff=0.6)]
