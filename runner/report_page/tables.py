"""The tables of a run, as headings and rows of text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..benching.record import EAGER, END_TO_END, STAGE_ALONE, STAGE_INSIDE, SUM, Record
from . import texts
from .runs import Run, StageRow

SCOPES = (STAGE_ALONE, STAGE_INSIDE)


@dataclass(frozen=True)
class Row:
    """cells: what stands after the head. id: of the node, "" for a row that has none. phase: what it is part of."""

    head: str
    cells: tuple[str, ...]
    id: str = ""
    phase: str = ""
    why: str = ""


@dataclass(frozen=True)
class Table:
    """columns: (heading, is a number) after the head. caption: what must be known to read it."""

    title: str
    head: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[Row, ...]
    caption: str = ""


def tables_of(run: Run) -> list[Table]:
    found = [stage_table(run, implementation) for implementation in run.implementations]
    found += [op_table(run)] if run.ops else []
    return [told(each) for each in found]


def told(table: Table) -> Table:
    """The table without the columns that say nothing in any row."""
    said = [n for n in range(len(table.columns)) if any(row.cells[n] not in ("", texts.NONE) for row in table.rows)]
    rows = tuple(replace(row, cells=tuple(row.cells[n] for n in said)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[n] for n in said), rows=rows)


def stage_table(run: Run, implementation: str) -> Table:
    """A row for each node, each clock's times beside each other; how each was timed stands in the caption."""
    rows = run.stages_of(implementation)
    scopes = [scope for scope in SCOPES if any(scope in row.by_scope for row in rows)]
    columns = [("uses", False), ("launcher", False)]
    for scope in scopes:
        columns += [(f"{short(scope)} ms", True), ("p20 – p80", True)]
    columns += [(name, True) for name in ("share", "TFLOP/s", "GB/s", "floor ms", "% of floor")]
    columns += [("bound by", False), ("error of budget", True)]
    mixed = any(row.implementation != row.whole for row in rows)
    body = [stage_row(row, scopes, total(rows, scopes), mixed) for row in rows]
    body += total_rows(run, implementation, scopes)
    return Table(f"stages, {implementation}", "stage", tuple(columns), tuple(body), stage_caption(rows, scopes))


def short(scope: str) -> str:
    return scope.removeprefix("stage ")


def total(rows: tuple[StageRow, ...], scopes: list[str]) -> float:
    return sum(row.ms(scopes[0]) or 0.0 for row in rows) if scopes else 0.0


def stage_row(row: StageRow, scopes: list[str], total_ms: float, mixed: bool) -> Row:
    """mixed: not all stages have the launcher that the title names."""
    timed = [cell for scope in scopes for cell in times(row.by_scope.get(scope))]
    judged = row.by_scope.get(scopes[0], row.first) if scopes else row.first
    ms = judged.timing.median_ms if judged.timing else None
    share = texts.percent(100 * ms / total_ms) if ms is not None and total_ms else texts.NONE
    launcher = row.implementation.removeprefix("chunkwise ") if mixed else texts.NONE
    cells = (row.uses, launcher, *timed, share, *limit_cells(judged), texts.error_text(judged))
    return Row(row.id, cells, row.id, row.phase, judged.why)


def times(record: Record | None) -> tuple[str, str]:
    return texts.median(record), texts.spread(record)


def limit_cells(record: Record | None) -> tuple[str, ...]:
    limits = record.limits if record else None
    if limits is None:
        return (texts.NONE,) * 5
    floor = texts.NONE if limits.floor_ms is None else texts.milliseconds(limits.floor_ms)
    rates = texts.rounded(limits.tflops), texts.rounded(limits.gbps, 4)
    return *rates, floor, texts.percent(limits.sol_pct), limits.bound_by or texts.NONE


def total_rows(run: Run, implementation: str, scopes: list[str]) -> list[Row]:
    """The sum of the stages by each clock, the whole op, and what lies between them."""
    sums = [run.whole(SUM, implementation, scope) for scope in scopes]
    whole = run.whole(END_TO_END, implementation, EAGER)
    if not any(sums):
        return []
    rows = [Row("sum of stages", ("", "", *flat(map(times, sums)), "", *limit_cells(sums[0]), ""))]
    if whole and whole.timing:
        gaps = [(gap(whole, each), "") for each in sums]
        ends = flat(times(whole) for _ in scopes)
        rows.append(Row("gap", ("", "", *flat(gaps), *[""] * 7)))
        rows.append(Row("end to end, eager", ("", "", *ends, "", *limit_cells(whole), "")))
    return rows


def flat(cells: Iterable[Iterable[str]]) -> list[str]:
    return [cell for each in cells for cell in each]


def gap(whole: Record, total: Record | None) -> str:
    if total is None or total.timing is None:
        return texts.NONE
    return texts.milliseconds(whole.timing.median_ms - total.timing.median_ms)


def stage_caption(rows: tuple[StageRow, ...], scopes: list[str]) -> str:
    """How each scope was timed, for a figure is worth nothing without it."""
    words = []
    for scope in scopes:
        clocks = dict.fromkeys(texts.clock_words(row.by_scope[scope].clock) for row in rows if scope in row.by_scope)
        words.append(f"{short(scope)}: {SAID[scope]}, {' / '.join(clocks)}")
    first = f"share, rates and floor are of {short(scopes[0])}" if scopes else ""
    last = "gap: end to end less the sum"
    return "; ".join([*words, "medians", *([first] if first else []), last])


SAID = {STAGE_ALONE: "each stage by itself", STAGE_INSIDE: "each stage between the others, in one run"}

OP_COLUMNS = (
    ("scope", False), ("timer, L2", False), ("ms", True), ("p20 – p80", True), ("noise", True), ("TFLOP/s", True),
    ("GB/s", True), ("floor ms", True), ("% of floor", True), ("bound by", False), ("host µs", True),
    ("peak MB", True), ("error of budget", True), ("what ran", False),
)  # fmt: skip


def op_table(run: Run) -> Table:
    """The whole op, by every implementation; a peer that is missing or failed is a row that says so."""
    return Table("whole op", "implementation", OP_COLUMNS, tuple(map(op_row, run.ops)), notes(run))


def op_row(record: Record) -> Row:
    measured = (texts.rounded(record.host_us), texts.rounded(record.peak_mem_mb))
    ran = ", ".join(record.what.ran) or texts.NONE
    timed = (record.clock.scope, texts.clock_words(record.clock), *times(record), texts.noise(record))
    cells = (*timed, *limit_cells(record), *measured, texts.error_text(record), ran)
    return Row(record.what.implementation, cells, why=record.why)


def notes(run: Run) -> str:
    """What the records say for the reader, each sentence once."""
    found = (note for record in run.records for note in (record.gate, *record.notes) if note)
    return "; ".join(dict.fromkeys(found))


def kernel_table(run: Run) -> Table | None:
    """What the compiled kernels use; None where no record says so."""
    rows = tuple(kernel_rows(run))
    names = ("ms", "registers", "spilled bytes", "shared", "occupancy")
    columns = (("stage", False), *((name, True) for name in names), ("matrix instruction", False))
    caption = "from the compiled binaries: registers of a thread, shared memory of a block"
    return told(Table("kernels", "kernel", columns, rows, caption)) if rows else None


def kernel_rows(run: Run) -> Iterator[Row]:
    for row in run.stages:
        kernels = next((record.kernels for record in row.by_scope.values() if record.kernels), ())
        for each in kernels:
            ms = texts.NONE if each.ms is None else texts.milliseconds(each.ms)
            counts = (texts.rounded(each.registers), texts.rounded(each.spills), texts.size(each.shared))
            matrix = each.matrix or texts.NONE
            yield Row(each.name, (row.id, ms, *counts, texts.percent(each.occupancy_pct), matrix), row.id)


def edge_table(run: Run) -> Table | None:
    columns = (("from", False), ("to", False), ("handed over", True))
    rows = [
        Row(edge.value, (edge.source or "input", edge.target or "output", texts.size(edge.bytes)), edge.source)
        for edge in sorted(run.edges, key=lambda edge: -edge.bytes)
    ]
    caption = "bytes that each reader of a value takes through memory"
    return Table("edges", "value", columns, tuple(rows), caption) if rows else None
