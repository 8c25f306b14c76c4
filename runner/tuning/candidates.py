"""Which configurations of a kernel are worth a try: those that ship, and those a step away in one of their numbers."""

from collections.abc import Iterable, Iterator

import torch

from ...stages._contract import Config
from ..planning.tuned import F32, is_choice

OTHERS = {"num_warps": (1, 8), "num_stages": (1, 5)}
TILE = (16, 256)
"""Rows or columns of a tile, where what ships is not beyond them already."""


def neighbours(config: Config, io: torch.dtype, shipped: Iterable[Config]) -> list[Config]:
    """The configurations that differ from one in one number, by a step."""
    shipped = list(shipped)
    found = []
    for name in varied(config, io):
        least, most = limits(name, [each[name] for each in shipped if name in each])
        found += [{**config, name: number} for number in steps(name, config[name]) if least <= number <= most]
    return found


def varied(config: Config, io: torch.dtype) -> Iterator[str]:
    """The numbers that are a choice and count for this dtype; of tiles those that are powers of two."""
    for name, number in config.items():
        base = name.removesuffix(F32)
        counts = name.endswith(F32) == (io.itemsize == 4 and f"{base}{F32}" in config)
        if counts and is_choice(base) and (base in OTHERS or number & (number - 1) == 0 < number):
            yield name


def steps(name: str, number: int) -> tuple[int, int]:
    if name.removesuffix(F32) == "num_stages":
        return number - 1, number + 1
    return number // 2, number * 2


def limits(name: str, shipped: list[int]) -> tuple[int, int]:
    least, most = OTHERS.get(name.removesuffix(F32), TILE)
    return min(least, *shipped), max(most, *shipped)
