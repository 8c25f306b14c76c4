"""What someone probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 80
"""Longer names are no slip of the pen, and comparing them costs quadratic time."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of names that looks most like name, or None if none is near. Case does not count."""
    if len(name) > LONGEST:
        return None
    by_lower = {each.lower(): each for each in sorted(names, reverse=True)}
    found = get_close_matches(name.lower(), sorted(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None
