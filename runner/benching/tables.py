"""Records as tables: rows of text, for the terminal and for Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from .record import EAGER, END_TO_END, FIRST_CALL, NOT_VERIFIED, REPLAY, STAGE_ALONE, STAGE_INSIDE, SUM, Limits, Record

CPU_TIMES = "CPU reference times: references in PyTorch, or kernels interpreted. They are no measure of the kernels."
NOISY_PCT = 20
STAGE_COLUMNS = (
    "stage", "uses", "implementation", "alone ms", "p20 - p80", "+-", "inside ms", "share", "TFLOP/s", "GB/s",
    "floor ms", "of floor", "bound by", "error, budget", "timer, caches",
)  # fmt: skip
OP_COLUMNS = (
    "end to end", "scope", "ms", "p20 - p80", "+-", "TFLOP/s", "of floor", "host us", "peak MB", "error, budget",
    "timer, caches",
)  # fmt: skip


UNKNOWN = Limits(0.0, 0)
"""Of a record that says nothing of its limits."""


@dataclass(frozen=True)
class Table:
    """title and notes: lines above and below. rows: as wide as columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def tables(records: Iterable[Record]) -> list[Table]:
    """Two for each pipeline and workload: its stages, and the whole op with its peers."""
    found = []
    for _, group in groupby(records, key=lambda each: (each.what.pipeline, each.workload, each.environment_id)):
        group = list(group)
        stages = stage_table(group)
        found += [stages] if stages.rows else []
        found.append(op_table(group))
    return found


def title(record: Record) -> str:
    workload = record.workload
    return f"{record.what.pipeline}: {workload.dtype}, {workload.mode}, {device(record)}, {workload.sizes}"


def device(record: Record) -> str:
    return record.environment.get("gpu") or record.environment.get("cpu") or "unknown device"


def on_cpu(record: Record) -> bool:
    return "gpu" not in record.environment


def stage_table(group: Sequence[Record]) -> Table:
    inside = {each.what.stage: each for each in group if each.clock.scope == STAGE_INSIDE}
    alone = [each for each in group if each.clock.scope == STAGE_ALONE and each.timing]
    total = next((each.timing.median_ms for each in alone if each.what.stage == SUM), 0.0)
    rows = [stage_row(each, inside.get(each.what.stage), total) for each in alone]
    between = dict.fromkeys(f"{each.clock.scope}: {timed_by(each)}" for each in inside.values())
    return Table(title(group[0]), STAGE_COLUMNS, tuple(rows), (*between, *kernel_lines(alone), *traffic_lines(group)))


def timed_by(record: Record) -> str:
    return f"{record.clock.timer}, {record.clock.l2}"


def stage_row(record: Record, inside: Record | None, total: float) -> tuple[str, ...]:
    timing, found = record.timing, record.limits or UNKNOWN
    return (
        record.what.stage, record.what.uses, record.what.implementation, ms(timing.median_ms), spread(record),
        noise(record), ms(inside.timing.median_ms) if inside and inside.timing else "",
        f"{100 * timing.median_ms / total:.1f} %" if total else "", figure(found.tflops), figure(found.gbps),
        ms(found.floor_ms), percent(found.sol_pct), found.bound_by or "", error(record), timed_by(record),
    )  # fmt: skip


def op_table(group: Sequence[Record]) -> Table:
    whole = [each for each in group if each.what.stage == END_TO_END]
    whole.sort(key=lambda each: (EAGER, REPLAY, FIRST_CALL).index(each.clock.scope))
    notes = [f"{each.what.implementation}, {each.clock.scope}: {each.why}" for each in whole if each.why]
    notes += [f"{each.what.implementation} ran {', '.join(each.what.ran)}" for each in whole if each.what.ran]
    notes += [note for each in whole for note in each.notes]
    gates = dict.fromkeys(f"{'!!! ' if each.gate == NOT_VERIFIED else ''}{each.gate}" for each in whole if each.gate)
    cpu = [CPU_TIMES] if on_cpu(group[0]) else []
    return Table(title(group[0]), OP_COLUMNS, tuple(map(op_row, whole)), (*notes, *gates, *noisy_lines(group), *cpu))


def noisy_lines(group: Sequence[Record]) -> list[str]:
    found = dict.fromkeys(each.what.stage for each in group if each.timing and each.timing.runs > 1
                          and each.timing.noise_pct > NOISY_PCT)  # fmt: skip
    names = [*list(found)[:3], *(["..."] if len(found) > 3 else [])]
    why = "something else runs here, or they are too short"
    return [f"noise above {NOISY_PCT} %: {', '.join(names)}; {why}"] if found else []


def op_row(record: Record) -> tuple[str, ...]:
    name, scope = record.what.implementation, record.clock.scope
    if not record.timing:
        return (name, scope, "not timed", *[""] * (len(OP_COLUMNS) - 3))
    found = record.limits
    cells = (figure(found.tflops), percent(found.sol_pct)) if found else ("", "")
    host = f"{record.host_us:.0f}" if record.host_us is not None else ""
    peak = f"{record.peak_mem_mb:.0f}" if record.peak_mem_mb is not None else ""
    return (name, scope, ms(record.timing.median_ms), spread(record), noise(record), *cells, host, peak,
            error(record), timed_by(record))  # fmt: skip


def kernel_lines(records: Sequence[Record]) -> list[str]:
    return [
        f"{record.what.stage}: {kernel.name}{'' if kernel.ms is None else f', {ms(kernel.ms)} ms'}, {binary(kernel)}"
        for record in records
        for kernel in record.kernels
    ]


def binary(kernel) -> str:
    if kernel.registers is None:
        return "interpreted: there is no binary"
    return (
        f"{kernel.registers} registers, {kernel.spills} bytes spilled, {kernel.shared} bytes shared, "
        f"occupancy {kernel.occupancy_pct:.0f} %, matrix instruction {kernel.matrix}"
    )


def traffic_lines(group: Sequence[Record]) -> list[str]:
    """What stages hand each other through memory, against what the op cannot do without."""
    whole = next((each for each in group if each.what.stage == END_TO_END and each.edges and each.limits), None)
    total = next((each for each in group if each.what.stage == SUM and each.limits), None)
    if not (whole and total):
        return []
    between = [each for each in whole.edges if each.source and each.target]
    largest = sorted(between, key=lambda each: -each.bytes)[:4]
    names = ", ".join(f"{each.value} to {each.target} {mb(each.bytes)}" for each in largest)
    times = f", {total.limits.bytes / whole.limits.bytes:.1f} times that" if whole.limits.bytes else ""
    return [
        f"the op moves at least {mb(whole.limits.bytes)}, its stages {mb(total.limits.bytes)}{times}",
        *([f"handed over: {names}{', ...' if len(between) > 4 else ''}"] if between else []),
    ]


def markdown(found: Sequence[Table]) -> str:
    parts = []
    for table in found:
        rows = (table.columns, *table.rows)
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        lines.insert(1, "|" + " --- |" * len(table.columns))
        parts += [f"**{table.title}**", "", *lines, "", *(f"- {note}" for note in table.notes), ""]
    return "\n".join(parts)


# --- figures


def ms(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if abs(value) < 1 else f"{value:.3f}"


def spread(record: Record) -> str:
    return "" if record.timing.runs == 1 else f"{ms(record.timing.p20_ms)} - {ms(record.timing.p80_ms)}"


def noise(record: Record) -> str:
    return "" if record.timing.runs == 1 else f"{record.timing.noise_pct:.1f} %"


def figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


def mb(count: int) -> str:
    return f"{count / 1e6:.3g} MB"


def error(record: Record) -> str:
    if record.error is None:
        return ""
    budget = "" if record.error.budget is None else f", {record.error.budget:.1e}"
    return f"{record.error.rel_l2_err:.1e}{budget}"
