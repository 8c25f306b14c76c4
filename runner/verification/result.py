"""What a verification found, as data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..diagnostics.errors import Diagnostic
from .breaches import Breach
from .budgets import Verdict


@dataclass(frozen=True)
class Row:
    """One tensor that was checked. id: a node's id, ``op``, or ``file`` for what an inputs file expects. against: what
    was taken as the truth. breach: a law that its values break while what came in keeps its own."""

    id: str
    stage: str
    value: str
    backend: str
    against: str
    verdict: Verdict
    breach: Breach | None = None

    @property
    def ok(self) -> bool:
        return self.verdict.ok and self.breach is None

    @property
    def why(self) -> str:
        """Empty when ok."""
        return self.verdict.why or (f"breaks its law, {self.breach.law.words}" if self.breach else "")

    @property
    def word(self) -> str:
        """ok, or what is wrong, in two or three words."""
        return self.verdict.over or ("OUT OF LAW" if self.breach else "ok")


@dataclass(frozen=True)
class PeerRow:
    """One result of another implementation, beside ours. peer: its name in --vs. ran: what it really was, with its
    version; empty where nothing is known of it. value: empty where there is none, and verdict is None. why: it is not
    within budget, or there is nothing to compare; word: that in two or three words."""

    peer: str
    ran: str
    value: str
    verdict: Verdict | None
    against: str
    why: str
    word: str


@dataclass(frozen=True)
class Swap:
    """One stage's part in a result's relative L2 error. err: what is left when it alone is exact. own: what it makes by
    itself, when all others are exact and nothing is rounded but by it."""

    id: str
    stage: str
    backend: str
    err: float
    own: float


@dataclass(frozen=True)
class Attribution:
    """What one output, or gradient ``d_<input>``, owes its error to.

    err: its relative L2 error as the op ran. swaps: of every stage that it depends on, in running order. all_exact: the
    error when all of them are exact: the rounding of ports; more than that where references or edges are not those of
    the truth.
    """

    output: str
    err: float
    swaps: tuple[Swap, ...]
    all_exact: float

    def share(self, left: float) -> float:
        """How much of the squared error is gone when ``left`` is left: 1 for all, below 0 where it grew. Squares: that
        is how the errors of stages add up that have nothing to do with each other."""
        if not math.isfinite(self.err):
            return 1.0 if math.isfinite(left) else 0.0
        return 1 - (left / self.err) ** 2 if self.err else 0.0

    @property
    def by_share(self) -> tuple[Swap, ...]:
        """The stage most to blame first."""
        return tuple(sorted(self.swaps, key=lambda swap: -self.share(swap.err)))

    @property
    def own(self) -> float:
        """What all stages make by themselves, errors that have nothing to do with each other."""
        return math.hypot(*(swap.own for swap in self.swaps))


@dataclass(frozen=True)
class Verification:
    """rows in running order, the op's last. heads: the key heads that were checked; None for all. lengths: of packed
    sequences. failure: what went wrong first and where it stands; None when ok. attributions: one for each output
    and gradient, where that was asked for. peers: of other implementations, which decide nothing. notes: what the plans
    say of what was checked: which stages stand for which, and what was refused."""

    pipeline: str
    sizes: Mapping[str, int]
    io: torch.dtype
    backend: str
    case: str
    rows: tuple[Row, ...]
    heads: tuple[int, ...] | None = None
    lengths: tuple[int, ...] | None = None
    failure: Diagnostic | None = None
    attributions: tuple[Attribution, ...] = ()
    peers: tuple[PeerRow, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    @property
    def first_bad(self) -> Row | None:
        return next((row for row in self.rows if not row.ok), None)
