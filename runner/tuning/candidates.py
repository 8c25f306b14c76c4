"""Which configurations of a kernel are worth a try: those that ship, and those a step away in one of their numbers."""

from collections.abc import Iterable, Iterator

import torch

from ...stages._contract import Config

WARPS, STAGES = (1, 8), (1, 5)
TILE = (16, 256)
"""Rows or columns of a tile, where what ships is not beyond them already."""
F32 = "_F32"
"""What a number's name ends with that stands in its place in float32 (stages/_tiles.py, by_dtype)."""


def neighbours(config: Config, io: torch.dtype, shipped: Iterable[Config]) -> list[Config]:
    """The configurations that differ from one in one number, by a step."""
    shipped = list(shipped)
    found = []
    for name in varied(config, io):
        least, most = limits(name, [each[name] for each in shipped if name in each])
        found += [{**config, name: number} for number in steps(name, config[name]) if least <= number <= most]
    return found


def varied(config: Config, io: torch.dtype) -> Iterator[str]:
    """The numbers that count for this dtype and that any kernel could have otherwise: warps, stages and tiles."""
    for name in config:
        base = name.removesuffix(F32)
        counts = name.endswith(F32) == (io.itemsize == 4 and f"{base}{F32}" in config)
        if counts and (base in ("num_warps", "num_stages") or is_tile(base, config[name])):
            yield name


def is_tile(name: str, size: int) -> bool:
    """BK, BV, TILE, BLOCK and the like, where the size is a power of two."""
    named = name in ("TILE", "BLOCK") or (len(name) == 2 and name[0] == "B" and name.isupper())
    return named and size > 0 and size & (size - 1) == 0


def steps(name: str, number: int) -> tuple[int, int]:
    if name.removesuffix(F32) == "num_stages":
        return number - 1, number + 1
    return number // 2, number * 2


def limits(name: str, shipped: list[int]) -> tuple[int, int]:
    least, most = {"num_warps": WARPS, "num_stages": STAGES}.get(name.removesuffix(F32), TILE)
    return min(least, *shipped), max(most, *shipped)
