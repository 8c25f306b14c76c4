"""The difference of two pipelines in words and as JSON."""

from collections.abc import Iterable, Sequence

from ..comparing.changes import PARTS, Change
from ..comparing.compare_graphs import Difference
from ..comparing.compare_reports import Report, Row, rows, unlike
from ..diagnostics.render_errors import shown_path
from ._tables import table

SIGNS = {"added": "+", "removed": "-", "changed": "~", "renamed": "~"}
SECTIONS = {part: part for part in PARTS} | {"values": "types of values"}


def diff_lines(found: Difference) -> list[str]:
    """A section for each part that differs, a line for each change."""
    old, new = found.old.spec, found.new.spec
    lines = [f"- {old.name}  ({shown_path(old.file)})", f"+ {new.name}  ({shown_path(new.file)})"]
    if not found.changes:
        return [*lines, "", "no difference"]
    for part in PARTS:
        changes = [change for change in found.changes if change.part == part]
        if changes:
            lines += ["", SECTIONS[part], *aligned(changes)]
    return lines


def aligned(changes: Sequence[Change]) -> Iterable[str]:
    names = [" ".join(filter(None, (change.name, change.what))) for change in changes]
    width = max(map(len, names))
    for name, change in zip(names, changes, strict=True):
        yield f"  {SIGNS[change.kind]} " + (f"{name:{width}}  " if width else "") + change_words(change)


def change_words(change: Change) -> str:
    if change.kind == "renamed":
        return f"was {change.before}"
    if change.kind == "changed":
        return f"{change.before or 'none'} -> {change.after or 'none'}"
    return change.after or change.before


def times_table(found: Difference, before: Report, after: Report):
    columns = {"stage": "left", "uses": "left", **dict.fromkeys(headings(found), "right"), "difference": "right"}
    lines = [(row.id, row.stage, *time_cells(row.before, row.after)) for row in rows(found, before, after)]
    lines.append(("sum of stages", "", *time_cells(before.sum_ms, after.sum_ms)))
    lines.append(("end to end", "", *time_cells(before.end_to_end_ms, after.end_to_end_ms)))
    return table("\nmilliseconds", columns, lines)


def headings(found: Difference) -> tuple[str, str]:
    old, new = found.old.name, found.new.name
    return (old, new) if old != new else ("first", "second")


def time_cells(before: float | None, after: float | None) -> tuple[str, str, str]:
    cells = ["-" if each is None else f"{each:.4f}" for each in (before, after)]
    return *cells, f"{after - before:+.4f}" if before is not None and after is not None else ""


def time_notes(before: Report, after: Report) -> list[str]:
    return [f"note: the runs differ in {each}" for each in unlike(before, after)]


def diff_document(found: Difference, times: tuple[Report, Report] | None, files: Sequence[str]) -> dict:
    return {
        "pipelines": [found.old.name, found.new.name],
        "same": not found.changes,
        "matches": dict(found.matches),
        "changes": [change_document(change) for change in found.changes],
        "times": times_document(found, *times) if times else None,
        "files": list(files),
    }


def change_document(change: Change) -> dict:
    facts = {name: getattr(change, name) for name in ("part", "kind", "name", "what", "before", "after")}
    return {name: value for name, value in facts.items() if value != ""}


def times_document(found: Difference, before: Report, after: Report) -> dict:
    return {
        "stages": [row_document(row) for row in rows(found, before, after)],
        "sum_of_stages_ms": [before.sum_ms, after.sum_ms],
        "end_to_end_ms": [before.end_to_end_ms, after.end_to_end_ms],
        "notes": unlike(before, after),
    }


def row_document(row: Row) -> dict:
    return {"id": row.id, "stage": row.stage, "latency_ms": [row.before, row.after]}
