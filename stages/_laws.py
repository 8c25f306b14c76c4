"""The closed list of value laws: what may be said of a tensor's values.

    <= 0    >= 0    > 0    0..1    -5..0      an interval
    unit_norm(K)                              L2 norm over the axis at most 1: 1 for a row that carries
                                              something, 0 for padding
    non_increasing(T in chunk)                starts at 0 or below and never rises along T inside a chunk
    retention_slopes(HV)                      log(1 - 2^(-5 - h)) for value head h
    lightning_slopes(HV)                      -(8 / HV) (1 - layer / layers) h for value head h of some layer
    row_count(Sk)                             how many rows of Sk a sequence has: not below 0
    row_of(PAGES)                             a row of PAGES; a number that is none names no row that is read
    row_ends(Sq)                              where sequences that lie one after another along Sq end: not below 0, and
                                              none before the one that it follows
    slots                                     row numbers, no two the same, or -1 for none

One law serves three times: it shapes generated inputs (``sample``), finds a violation at run time
(``violations``), and stands in the documentation (``Law.words``).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from . import _slopes

INF = float("inf")
SLOPES = {
    "retention_slopes": ("log(1 - 2^(-5 - h))", _slopes.retention_slopes, _slopes.retention_violations),
    "lightning_slopes": ("-(8 / {HV}) (1 - layer / layers) h", _slopes.lightning_slopes, _slopes.lightning_violations),
}
"""Kind of a law on a tensor with one value per head -> (formula, its values, where given ones differ)."""
ROWS = {
    "row_count": "each is a number of rows of {axis}, not below 0",
    "row_of": "each is a row of {axis}, where a row is read",
    "row_ends": "each is a row of {axis} where a sequence ends, and none lies before the one that it follows",
}
"""Kind of a law on whole numbers that speak of the rows of another tensor's axis, or axes one inside the other -> that
in words."""
NUMBER = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Law:
    """kind: interval, unit_norm, non_increasing, slots, or one of SLOPES or ROWS. axis: what all but intervals speak
    of; of ROWS another tensor's."""

    kind: str
    text: str
    low: float = -INF
    high: float = INF
    open_low: bool = False
    axis: str | None = None

    @property
    def words(self) -> str:
        if self.kind == "interval":
            return f"every value is {self.text}" if ".." not in self.text else f"every value lies in {self.text}"
        if self.kind == "unit_norm":
            return f"the L2 norm over {self.axis} is 1 (0 for a padding row)"
        if self.kind in ROWS:
            return ROWS[self.kind].format(axis=self.axis)
        if self.kind == "slots":
            return "each is a row number that no other has, or -1"
        if self.kind in SLOPES:
            return f"the value is {SLOPES[self.kind][0].format(HV=self.axis)} at place h of {self.axis}"
        return f"along {self.axis} inside a chunk, values start at 0 or below and never rise"

    def implies(self, other: "Law") -> bool:
        if self.kind == other.kind == "interval":
            above = self.low > other.low or (self.low == other.low and self.open_low >= other.open_low)
            return above and self.high <= other.high
        if self.kind in ("non_increasing", *SLOPES) and other.kind == "interval":
            return other.low == -INF and other.high >= 0
        return self.kind == other.kind and self.axis == other.axis


def parse(text: str) -> Law | None:
    """The law that text states; None if it is not in the list."""
    text = text.strip()
    if found := re.fullmatch(rf"(<=|>=|>)\s*({NUMBER})", text):
        sign, number = found[1], float(found[2])
        if sign == "<=":
            return Law("interval", text, high=number)
        return Law("interval", text, low=number, open_low=sign == ">")
    if found := re.fullmatch(rf"({NUMBER})\s*\.\.\s*({NUMBER})", text):
        low, high = float(found[1]), float(found[2])
        return Law("interval", text, low, high) if low <= high else None
    if found := re.fullmatch(r"unit_norm\((\w+)\)", text):
        return Law("unit_norm", text, axis=found[1])
    if found := re.fullmatch(r"non_increasing\((\w+) in chunk\)", text):
        return Law("non_increasing", text, axis=found[1])
    if text == "slots":
        return Law("slots", text)
    if found := re.fullmatch(rf"({'|'.join(ROWS)})\((\w+(?: \w+)*)\)", text):
        return Law(found[1], text, axis=found[2])
    if found := re.fullmatch(rf"({'|'.join(SLOPES)})\((\w+)\)", text):
        return Law(found[1], text, axis=found[2])
    return None


FORMS = (
    "<= x", ">= x", "> x", "x..y", "unit_norm(AXIS)", "non_increasing(AXIS in chunk)", "slots",
    *(f"{kind}(AXIS)" for kind in [*SLOPES, *ROWS]),
)  # fmt: skip


def violations(law: Law, x: torch.Tensor, axes: tuple[str, ...], C: int) -> torch.Tensor:
    """Boolean tensor, true where x [axes] breaks the law; nan breaks every law. Rounding alone breaks none: a row of
    unit norm may be a little longer, and a sum in another order may rise by its last digits."""
    if law.kind == "interval":
        above = x > law.low if law.open_low else x >= law.low
        return ~(above & (x <= law.high))
    if law.kind == "slots":
        return (x < -1) | ((x[:, None] == x) & (x >= 0)).sum(1).gt(1)
    if law.kind in ROWS:
        return ~(x >= ends_before(x)) if law.kind == "row_ends" else ~(x >= 0)
    dim = axes.index(law.axis)
    if law.kind == "unit_norm":
        slack = 4 * torch.finfo(x.dtype).eps
        return ~(x.double().norm(dim=dim, keepdim=True) <= 1 + slack).expand_as(x)
    if law.kind in SLOPES:
        return SLOPES[law.kind][2](x.movedim(dim, -1)).movedim(-1, dim)
    moved = x.movedim(dim, 0)
    rises = torch.zeros_like(moved, dtype=torch.bool)
    inside = (torch.arange(len(moved), device=x.device) % C != 0)[1:].view(-1, *[1] * (x.dim() - 1))
    slack = 4 * torch.finfo(x.dtype).eps * moved[:-1].abs()
    rises[1:] = inside & ~(moved[1:] <= moved[:-1] + slack.nan_to_num(0.0, posinf=0.0))
    return rises.movedim(0, dim) | ~(x <= 0)


def distance(law: Law, x: torch.Tensor, axes: tuple[str, ...]) -> torch.Tensor:
    """How far beyond the law each number of x [axes] lies, where it lies beyond; in float64, nan for nan."""
    x = x.double()
    if law.kind in ROWS:
        return (ends_before(x) if law.kind == "row_ends" else 0) - x
    if law.kind == "interval":
        return torch.maximum(law.low - x, x - law.high)
    dim = axes.index(law.axis)
    if law.kind == "unit_norm":
        return (x.norm(dim=dim, keepdim=True) - 1).expand_as(x)
    if law.kind in SLOPES:
        return x.abs()
    before = x.roll(1, dim)
    return torch.maximum(x, x - before)


def ends_before(x: torch.Tensor) -> torch.Tensor:
    """For each end along the last axis, the one that it follows; 0 for the first."""
    return torch.cat([torch.zeros_like(x[..., :1]), x[..., :-1]], -1)


def sample(
    law: Law, noise: torch.Tensor, axes: tuple[str, ...], sizes: Mapping[str, int] | None = None
) -> torch.Tensor:
    """Values that keep the law, shaped from standard normal noise [axes]. sizes: of the axes that ROWS speak of."""
    if law.kind in ROWS:
        most = math.prod((sizes or {}).get(axis, 16) for axis in law.axis.split()) + (law.kind != "row_of")
        rows = (torch.sigmoid(2 * noise) * most).floor()
        return rows.sort(-1).values if law.kind == "row_ends" else rows
    if law.kind == "slots":
        # fewer rows than sequences are never generated, so that a rank is a row
        return torch.where(noise > 1, -1.0, noise.argsort().argsort().to(noise.dtype))
    if law.kind in SLOPES:
        moved = noise.movedim(axes.index(law.axis), -1)
        slopes = SLOPES[law.kind][1](moved.shape[-1], device=noise.device, dtype=noise.dtype)
        return slopes.expand(moved.shape).movedim(-1, axes.index(law.axis))
    if law.kind == "unit_norm":
        return torch.nn.functional.normalize(noise, dim=axes.index(law.axis))
    if law.kind == "non_increasing":
        return torch.nn.functional.logsigmoid(noise).cumsum(axes.index(law.axis))
    if law.low > -INF and law.high < INF:
        return law.low + (law.high - law.low) * torch.sigmoid(noise)
    if law.high < INF:
        return law.high + torch.nn.functional.logsigmoid(noise)
    return law.low - torch.nn.functional.logsigmoid(noise)
