"""What was compared, as tables, as JSON and as errors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..benching.record import Record
from ..benching.tables import ms
from ..comparing.compare_records import Pair
from ..comparing.verdicts import SLOWER
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from ..diagnostics.marks import Mark
from ._tables import table


@dataclass(frozen=True)
class Sides:
    """before, after: what the two are called. missing: what is said of a thing that one of them lacks. about: what the
    tables are titled with, if not with the one pipeline. axes: whose sizes they are titled with, if not with all."""

    before: str = "before"
    after: str = "after"
    missing: tuple[str, str] = ("not there before", "not there after")
    about: str | None = None
    axes: frozenset[str] | None = None

    @staticmethod
    def named(before: str, after: str, about: str | None = None, axes: frozenset[str] | None = None) -> "Sides":
        """Two of one name are the first and the second."""
        before, after = (before, after) if before != after else ("first", "second")
        return Sides(before, after, (f"not in {before}", f"not in {after}"), about, axes)

    def title(self, pair: Pair) -> str:
        workload = pair.shown.workload
        if self.axes is not None:
            axes = {axis: size for axis, size in workload.axes.items() if axis in self.axes}
            workload = replace(workload, axes=axes)
        return f"{self.about or pair.shown.what.pipeline}: {workload.dtype}, {workload.mode}, {workload.sizes}"


def regressions(rows: Iterable[Pair], most: float, sides: Sides) -> list[Diagnostic]:
    """Slower by more than so many percent; timed before and now no more is slower than anything. What another stage
    costs than the one that was there is seen in the sums and end to end; a peer's own times are none of ours."""
    found = []
    for pair in rows:
        if pair.of_peer:
            continue
        if pair.one_stage and pair.verdict and pair.verdict.word == SLOWER and pair.verdict.change_pct > most:
            found.append(Diagnostic(codes.REGRESSION, slower(pair, sides), place_of(pair.after)))
        elif pair.lost:
            found.append(Diagnostic(codes.REGRESSION, lost(pair, sides), place_of(pair.after)))
    return found


def slower(pair: Pair, sides: Sides) -> str:
    found, both = pair.verdict, ((pair.before, sides.before), (pair.after, sides.after))
    times = ", ".join(f"{name} {each.timing.median_ms:.4g} ms" for each, name in both)
    return f"{what(pair)} is slower by {found.change_pct:.1f} %, with a noise of {found.noise_pct:.1f} %: {times}"


def lost(pair: Pair, sides: Sides) -> str:
    time = f"{sides.before} {pair.before.timing.median_ms:.4g} ms, {sides.after} none"
    return f"{what(pair)} is not timed any more: {time}, for {pair.after.why}"


def what(pair: Pair) -> str:
    record = pair.after
    return f"{record.what.pipeline}, {name_of(pair)} ({record.what.implementation}, {record.clock.scope})"


def place_of(record: Record) -> Mark | None:
    source = record.what.source
    return source and Mark(source.file, source.line, 1, source.line, 2)


def verdict_tables(rows: Iterable[Pair], sides: Sides) -> list:
    """One for each pipeline and workload; of those that only one side has, a line."""
    found: dict[str, list[Pair]] = {}
    for pair in rows:
        found.setdefault(sides.title(pair), []).append(pair)
    columns = {"": "left", "scope": "left", f"{sides.before} ms": "right", f"{sides.after} ms": "right",
               "change": "right", "+-": "right", "verdict": "left"}  # fmt: skip
    both = {title: pairs for title, pairs in found.items() if any(pair.before and pair.after for pair in pairs)}
    parts = [table(f"\n{title}", columns, [row(pair, sides) for pair in pairs]) for title, pairs in both.items()]
    alone = [f"{sides.missing[not pairs[0].after]}: {title}" for title, pairs in found.items() if title not in both]
    return [*parts, *([""] if alone and parts else []), *alone]


def row(pair: Pair, sides: Sides) -> tuple[str, ...]:
    shown, found = pair.shown, pair.verdict
    one = len({each.what.implementation for each in (pair.before, pair.after) if each}) == 1
    name = f"{shown.what.stage}, {shown.what.implementation}" if one and not shown.what.uses else name_of(pair)
    times = [ms(each.timing.median_ms) if each and each.timing else "-" for each in (pair.before, pair.after)]
    if not found:
        return (name, shown.clock.scope, *times, "", "", why_none(pair, sides))
    return (name, shown.clock.scope, *times, f"{found.change_pct:+.1f} %", f"{found.noise_pct:.1f} %", found.word)


def name_of(pair: Pair) -> str:
    """``scan``; ``scan -> states`` where their ids differ, ``scan (chunk_h -> chunk_h_o)`` where what they use does."""
    both = [each.what for each in (pair.before, pair.after) if each]
    ids, uses = (" -> ".join(dict.fromkeys(texts)) for texts in zip(*((each.stage, each.uses) for each in both)))
    return ids if pair.one_stage or len(both) == 1 else f"{ids} ({uses})"


def why_none(pair: Pair, sides: Sides) -> str:
    """Why there is no verdict."""
    if pair.before and pair.after:
        return pair.after.why or pair.before.why
    missing = sides.missing[pair.before is not None]
    return f"{missing}; {pair.shown.why}" if pair.shown.why else missing


def row_documents(rows: Sequence[Pair], sides: Sides) -> list[dict]:
    return [row_document(pair, sides) for pair in rows]


def row_document(pair: Pair, sides: Sides) -> dict:
    shown, found = pair.shown, pair.verdict
    facts = {"pipeline": shown.what.pipeline, "stage": shown.what.stage, "scope": shown.clock.scope}
    facts |= {"stages": [each and each.what.stage for each in (pair.before, pair.after)]}
    facts |= {"uses": [each and each.what.uses for each in (pair.before, pair.after)]}
    facts |= {"implementation": [each and each.what.implementation for each in (pair.before, pair.after)]}
    facts |= {"median_ms": [each and each.timing and each.timing.median_ms for each in (pair.before, pair.after)]}
    facts |= {"records": [each and each.id for each in (pair.before, pair.after)]}
    if not found:
        return facts | {"verdict": None, "why": why_none(pair, sides)}
    return facts | {"verdict": found.word, "change_pct": found.change_pct, "noise_pct": found.noise_pct}
