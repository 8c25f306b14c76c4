"""Laws that the numbers of a tensor break: how many of them, and which is farthest off."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ...stages import _laws
from ...stages._laws import Law
from ...stages._seqs import Seqs
from ..graphs.graph import Value


@dataclass(frozen=True)
class Breach:
    """count of total things (values or rows) break the law. worst: the farthest off and its place, as text."""

    law: Law
    count: int
    total: int
    things: str
    worst: str

    @property
    def words(self) -> str:
        return f"{self.count} of {self.total} {self.things} break it; the worst is {self.worst}"


def breaches(value: Value, x: torch.Tensor, seqs: Seqs) -> list[Breach]:
    """One for each law of the value that x breaks; rows past the last sequence do not count."""
    return [found for law in value.laws if (found := breach(value, law, x, seqs))]


def breach(value: Value, law: Law, x: torch.Tensor, seqs: Seqs) -> Breach | None:
    axes = tuple(map(str, value.axes))
    count, total, farthest, worst = 0, 0, -math.inf, ""
    for start, part in sequences(x, axes, seqs):
        wrong, off = _laws.violations(law, part, axes, seqs.C), _laws.distance(law, part, axes)
        if law.kind == "unit_norm":
            # one row that is too long breaks the law once, not once for each of its numbers
            dim = axes.index(law.axis)
            wrong, off, part = wrong.select(dim, 0), off.select(dim, 0), part.double().norm(dim=dim)
        count, total = count + int(wrong.sum()), total + wrong.numel()
        off = torch.where(wrong, off.nan_to_num(math.inf), -math.inf)
        if wrong.any() and off.max().item() > farthest:
            farthest = off.max().item()
            worst = place(value.name, law, axes, int(off.argmax()), part, start)
    return Breach(law, count, total, "rows" if law.kind == "unit_norm" else "values", worst) if count else None


def sequences(x: torch.Tensor, axes: tuple[str, ...], seqs: Seqs) -> Iterator[tuple[int, torch.Tensor]]:
    """(first row, rows) of each sequence of x; all of x where it has no tokens or is not packed."""
    if not seqs.packed or "T" not in axes:
        yield 0, x
        return
    start = 0
    for length in seqs.lengths:
        yield start, x.narrow(axes.index("T"), start, length)
        start += length


def place(name: str, law: Law, axes, at: int, shown: torch.Tensor, start: int) -> str:
    """``g[0, 5, 1] = 0.25`` of a number that breaks the law; ``|k[0, 5, 1, :]| = 3`` of a row."""
    index = [int(each) for each in torch.unravel_index(torch.tensor(at), shown.shape)]
    number = f"{shown[tuple(index)].item():.6g}"
    if law.kind == "unit_norm":
        index.insert(axes.index(law.axis), ":")
    if "T" in axes:
        index[axes.index("T")] += start
    where = f"{name}[{', '.join(map(str, index))}]"
    return f"|{where}| = {number}" if law.kind == "unit_norm" else f"{where} = {number}"
