"""How the tokens of all sequences are laid out for a loop over time.

Rows are ordered by (position in its sequence, rank of the sequence), longest sequence first. So the rows of one
step are neighbours, the sequences still running are a prefix of the ranks, and a state simply stops being touched
where its sequence ends: no padding, no mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Stretch:
    """Steps over which the same number of sequences runs."""

    steps: int
    running: int

    @property
    def rows(self) -> int:
        return self.steps * self.running


@dataclass(frozen=True)
class Lanes:
    """N sequences. total: rows of the flattened token axis (B * T), those past the last sequence included.

    order: sequence at each rank [N]. rank: rank of each sequence [N].
    row: flattened token index of each row [R]. sequence: rank of the sequence of each row [R].
    """

    total: int
    order: torch.Tensor
    rank: torch.Tensor
    row: torch.Tensor
    sequence: torch.Tensor
    stretches: tuple[Stretch, ...]

    @property
    def N(self) -> int:
        return self.order.shape[0]

    @property
    def rows(self) -> int:
        return self.row.shape[0]


def lay_out(starts: Sequence[int], lengths: Sequence[int], total: int, device: torch.device) -> Lanes:
    """starts: flattened token index of each sequence's first token."""
    count = torch.tensor(lengths, dtype=torch.int64)
    order = torch.argsort(count, descending=True, stable=True)
    sorted_lengths = count[order]
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), sorted_lengths)
    first = torch.cumsum(sorted_lengths, 0) - sorted_lengths
    time = torch.arange(int(count.sum())) - first[sequence]
    by_time = torch.argsort(time, stable=True)
    row = (torch.tensor(starts, dtype=torch.int64)[order][sequence] + time)[by_time]
    return Lanes(
        total=total,
        order=order.to(device),
        rank=torch.argsort(order).to(device),
        row=row.to(device),
        sequence=sequence[by_time].to(device),
        stretches=_stretches(sorted(length for length in lengths if length)),
    )


def _stretches(lengths: list[int]) -> tuple[Stretch, ...]:
    """lengths: ascending."""
    found, done = [], 0
    for ended, length in enumerate(lengths):
        if length > done:
            found.append(Stretch(length - done, len(lengths) - ended))
            done = length
    return tuple(found)
