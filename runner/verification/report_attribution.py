"""Whose error it is, as a table and as JSON."""

import math
from collections.abc import Iterator, Sequence

from .result import Attribution

MEANING = (
    "share: how much of the squared error is gone when that stage alone is exact: its float64 reference on what it is "
    "handed there, rounded once to its ports.",
    "Errors that build on each other count in several shares, errors that cancel make one negative, what ports round "
    "is in none: shares need not add up to 100 %.",
    "own err: what the stage makes by itself, its ports' rounding too, when all others are exact.",
)
MOST = 0.5


def attribution_table(found: Sequence[Attribution]):
    """For each output, the stage most to blame first."""
    from rich.table import Table

    table = Table(title="whose error it is", title_justify="left")
    table.add_column("output")
    table.add_column("exact")
    for name in ("rel L2 err", "share", "own err"):
        table.add_column(name, justify="right")
    for each in found:
        table.add_section()
        for row in rows(each):
            table.add_row(*row)
    return table


def rows(each: Attribution) -> Iterator[tuple[str, ...]]:
    yield each.output, "nothing: as the op ran", number(each.err), "", ""
    for swap in each.by_share:
        yield "", swap.id, number(swap.err), percent(each.share(swap.err)), number(swap.own)
    yield "", "every stage", number(each.all_exact), percent(each.share(each.all_exact)), ""


def attribution_lines(found: Sequence[Attribution]) -> list[str]:
    """What the shares mean, and whose error it is in a line for each output."""
    return [*MEANING, *(f"{each.output}: {verdict(each)}" for each in found)]


def verdict(each: Attribution) -> str:
    """The stage to look at; where its arithmetic is not to blame, the one whose ports round most away."""
    if each.err == 0:
        return "no error"
    if not each.swaps or each.own < MOST * each.err and each.share(each.all_exact) < MOST:
        return "no stage's: every one does what its reference says, so a reference or an edge is not the definition's"
    if each.share(each.all_exact) < MOST:
        most = max(each.swaps, key=lambda swap: swap.own)
        return f"no stage's arithmetic, but the rounding of ports: {most.id} adds most, {number(most.own)}"
    first = each.by_share[0]
    share = percent(each.share(first.err))
    return f"{first.id} {share}" if each.share(first.err) >= MOST else f"no one stage's: {first.id}, {share}, has most"


def number(err: float) -> str:
    return f"{err:.2e}" if math.isfinite(err) else "not finite"


def percent(share: float) -> str:
    """Negative shares in words: without that stage's error the output is further off."""
    text = f"{100 * share:.1f} %".replace("-0.0 %", "0.0 %")
    return f"error grows, {text}" if text.startswith("-") else text


def document(found: Sequence[Attribution]) -> list[dict]:
    """``attribution`` of ``verify --json``, an entry for each output."""
    return [
        {
            "output": each.output,
            "rel_l2_err": each.err,
            "stages": [
                {
                    "id": swap.id,
                    "stage": swap.stage,
                    "backend": swap.backend,
                    "rel_l2_err_when_exact": swap.err,
                    "share_pct": 100 * each.share(swap.err),
                    "own_rel_l2_err": swap.own,
                }
                for swap in each.by_share
            ],
            "rel_l2_err_when_all_exact": each.all_exact,
            "share_means": "of the squared error, what is gone when this stage alone is exact; need not add up to 100",
        }
        for each in found
    ]
