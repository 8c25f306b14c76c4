"""What someone probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 80
"""Longer names are no slip of the pen, and comparing them costs quadratic time."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of names that looks most like name, or None if none is near. Case does not count."""
    found = nearby(name, names, 1)
    return found[0] if found else None


def nearby(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Those of names that look most like name, the nearest first."""
    if len(name) > LONGEST:
        return []
    by_lower = {each.lower(): each for each in sorted(names, reverse=True)}
    return [by_lower[each] for each in get_close_matches(name.lower(), sorted(by_lower), n=most, cutoff=0.6)]
