"""Numbers and names of records as a page says them."""

from ..benching.record import Clock, Record, Workload
from ..drawing.picture_text import bytes_text
from ..reporting.report_run import milliseconds

NONE = "–"
WALL_CLOCK = "wall clock"
"""Clock.timer on a CPU."""


def median(record: Record | None) -> str:
    return milliseconds(record.timing.median_ms) if record and record.timing else NONE


def spread(record: Record | None) -> str:
    """Of one run there is none."""
    if record is None or record.timing is None or record.timing.runs == 1:
        return NONE
    return f"{milliseconds(record.timing.p20_ms)} – {milliseconds(record.timing.p80_ms)}"


def noise(record: Record) -> str:
    return f"± {record.timing.noise_pct:.1f} %" if record.timing and record.timing.runs > 1 else NONE


def rounded(value: float | None, digits: int = 3, unit: str = "") -> str:
    return NONE if value is None else f"{value:.{digits}g}{unit}"


def percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def size(count: int | None) -> str:
    return NONE if count is None else bytes_text(count)


def clock_words(clock: Clock) -> str:
    return f"{clock.timer}, {'caches' if clock.timer == WALL_CLOCK else 'L2'} {clock.l2}"


def moment(time: str) -> str:
    """``2026-11-30T02:52:39+00:00``, a time in UTC, to the minute."""
    return f"{time[:10]} {time[11:16]} UTC"


def workload_title(workload: Workload) -> str:
    axes = (axis for axis in ("B", "T", "H") if axis in workload.axes)
    name = workload.name or " ".join(f"{axis}={workload.axes[axis]}" for axis in axes)
    passes = "forward and backward" if workload.backward else "forward"
    return ", ".join([name, workload.dtype, *(["recurrent"] if workload.mode == "recurrent" else []), passes])


def axes_text(workload: Workload) -> str:
    return ", ".join(f"{axis}={length}" for axis, length in workload.axes.items()) + workload.form


def error_text(record: Record) -> str:
    """``3.2e-03 of 8.2e-03``; the budget is unknown for a peer."""
    if record.error is None:
        return NONE
    budget = "" if record.error.budget is None else f" of {record.error.budget:.1e}"
    return f"{record.error.rel_l2_err:.1e}{budget}"
