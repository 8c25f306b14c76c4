"""What a verification found, as data."""

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
class Verification:
    """rows in running order, the op's last. heads: the key heads that were checked; None for all. lengths: of packed
    sequences. failure: what went wrong first and where it stands; None when ok."""

    pipeline: str
    sizes: Mapping[str, int]
    io: torch.dtype
    backend: str
    case: str
    rows: tuple[Row, ...]
    heads: tuple[int, ...] | None = None
    lengths: tuple[int, ...] | None = None
    failure: Diagnostic | None = None

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    @property
    def first_bad(self) -> Row | None:
        return next((row for row in self.rows if not row.ok), None)
