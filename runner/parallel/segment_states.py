"""States of whole sequences as segments of their rows come by, and the cotangents of states on the way back."""

import torch

from .cut import Cut

Row = tuple[torch.Tensor, int]
"""One row of a tensor: the tensor, and which."""


class BatchStates:
    """First segment to last, of a plain batch: all of its sequences lie in every segment. given: as States has it."""

    def __init__(self, given: torch.Tensor | None):
        self.all = given

    def entering(self, cut: Cut) -> torch.Tensor | None:
        return self.all

    def leave(self, cut: Cut, found: torch.Tensor) -> None:
        self.all = found

    def final(self) -> torch.Tensor:
        return self.all


class BatchStateGradients:
    """Last segment to first, of a plain batch. last: as StateGradients has it."""

    def __init__(self, last: torch.Tensor | None):
        self.all = last

    def leaving(self, cut: Cut) -> torch.Tensor | None:
        return self.all

    def enter(self, cut: Cut, found: torch.Tensor | None) -> None:
        self.all = found

    def initial(self, count: int) -> torch.Tensor | None:
        return self.all


class States:
    """Row by row, first segment to last. given: those that the sequences begin with, or None."""

    def __init__(self, given: torch.Tensor | None):
        self.given, self.last, self.like = given, {}, None

    def entering(self, cut: Cut) -> torch.Tensor | None:
        if self.given is None and all(cut.begins):
            return None
        like = self.given if self.given is not None else next(iter(self.last.values()))[0]
        return together([self.row(n, begins, like) for n, begins in zip(cut.of, cut.begins)], like)

    def row(self, n: int, begins: bool, like: torch.Tensor) -> Row:
        """The state of sequence n where this segment has its first row here."""
        if not begins:
            return self.last[n]
        return zero(like) if self.given is None or n < 0 else (self.given, n)

    def leave(self, cut: Cut, found: torch.Tensor) -> None:
        self.like = found
        self.last.update({n: (found, at) for at, n in enumerate(cut.of) if n >= 0})

    def final(self) -> torch.Tensor:
        return together([self.last[n] for n in sorted(self.last)], self.like)


class StateGradients:
    """Row by row, last segment to first. last: the cotangent of the final states, or None."""

    def __init__(self, last: torch.Tensor | None):
        self.coming: dict[int, Row] = {} if last is None else {n: (last, n) for n in range(len(last))}
        self.first: dict[int, Row] = {}

    def leaving(self, cut: Cut) -> torch.Tensor | None:
        """Of the states that a segment leaves; None where nobody reads them."""
        like = next((self.coming[n][0] for n in cut.of if n in self.coming), None)
        if like is None:
            return None
        return together([self.coming[n] if n in self.coming else zero(like) for n in cut.of], like)

    def enter(self, cut: Cut, found: torch.Tensor | None) -> None:
        """found: of the states that entered it."""
        for at, (n, begins) in enumerate(zip(cut.of, cut.begins)):
            self.coming.pop(n, None)
            if found is not None and n >= 0:
                (self.first if begins else self.coming)[n] = found, at

    def initial(self, count: int) -> torch.Tensor | None:
        """Of those that count sequences began with; None where nobody read them."""
        if not self.first:
            return None
        like = next(iter(self.first.values()))[0]
        return together([self.first.get(n) or zero(like) for n in range(count)], like)


def zero(like: torch.Tensor) -> Row:
    return like.new_zeros(1, *like.shape[1:]), 0


def together(rows: list[Row], like: torch.Tensor) -> torch.Tensor:
    """[rows, ...], of like's kind; all rows of one tensor are that tensor."""
    if not rows:
        return like[:0]
    whole = rows[0][0]
    if len(rows) == len(whole) and all([x is whole and at == i for i, (x, at) in enumerate(rows)]):
        return whole
    return torch.cat([x[at : at + 1] for x, at in rows])
