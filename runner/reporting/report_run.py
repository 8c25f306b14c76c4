"""A run as a table and as JSON."""

from dataclasses import dataclass
from pathlib import Path

from ..backward.keep import kept_bytes
from ..calling.call import Call
from ..planning.dtypes import name_of
from ..planning.plan import buffer_of, bytes_of
from ..verification.report_verify import document as verify_document
from ..verification.report_verify import summary
from ..verification.result import Verification
from .environment import environment
from .timing import StageTiming, Timing, Timings


@dataclass(frozen=True)
class RunReport:
    """What ``run`` found. verification: at a small size, on the same device and back end."""

    call: Call
    timings: Timings
    verification: Verification
    seqlens: tuple[int, ...] | None
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def document(report: RunReport) -> dict:
    timings, call = report.timings, report.call
    return {
        "pipeline": call.graph.name,
        "dtype": name_of(call.io),
        "backend": call.backend,
        "axes": dict(call.sizes),
        "seqlens": report.seqlens,
        "stages": [stage_document(stage, timings) for stage in timings.stages],
        "sum_of_stages_ms": timings.sum_of_stages_ms,
        "gap_ms": timings.end_to_end.median_ms - timings.sum_of_stages_ms,
        "end_to_end_ms": timings.end_to_end.median_ms,
        "end_to_end_p20_ms": timings.end_to_end.p20_ms,
        "end_to_end_p80_ms": timings.end_to_end.p80_ms,
        "peak_mem_mb": timings.peak_mem_mb,
        "timed_by": timings.how,
        "kept_for_backward_mb": {n: b / 1e6 for n, b in kept_bytes(timings.graph, call.sizes, call.io).items()},
        "verify": verify_document(report.verification)["verify"],
        "environment": environment(call.device),
        "files": [str(path) for path in report.files],
        "notes": [*report.notes, *timings.notes],
    }


def stage_document(stage: StageTiming, timings: Timings) -> dict:
    return {
        "id": stage.id,
        "stage": stage.stage,
        "phase": stage.phase,
        "backend": stage.backend,
        "tuned": stage.tuned,
        "latency_ms": stage.timing.median_ms,
        "latency_p20_ms": stage.timing.p20_ms,
        "latency_p80_ms": stage.timing.p80_ms,
        "runs": stage.timing.runs,
        "share_pct": timings.share_pct(stage),
        "tflops": stage.tflops,
        "gbps": stage.gbps,
    }


def run_table(report: RunReport):
    from rich.table import Table

    call, timings = report.call, report.timings
    sizes = ", ".join(f"{axis}={size}" for axis, size in call.sizes.items())
    table = Table(title=f"{call.graph.name}: {name_of(call.io)}, {call.device}, {sizes}", title_justify="left")
    for name in ("stage", "uses", "back end"):
        table.add_column(name)
    for name in ("ms", "p20 - p80", "share", "TFLOP/s", "GB/s"):
        table.add_column(name, justify="right")
    for before, stage in zip((None, *timings.stages), timings.stages):
        if before and before.phase != stage.phase:
            table.add_section()
        table.add_row(
            stage.id,
            stage.stage,
            f"{stage.backend}, tuned" if stage.tuned else stage.backend,
            *time_cells(stage.timing),
            f"{timings.share_pct(stage):.1f} %",
            rate(stage.tflops),
            rate(stage.gbps),
        )
    table.add_section()
    total, whole = timings.sum_of_stages_ms, timings.end_to_end
    table.add_row("sum of stages", "", "", milliseconds(total))
    table.add_row("gap", "", "", milliseconds(whole.median_ms - total))
    table.add_row("end to end", "", "", *time_cells(whole))
    return table


def run_lines(report: RunReport) -> list[str]:
    """What stands below the table."""
    timings = report.timings
    lines = [f"timed by {timings.how}: medians; each stage alone, then the whole op"]
    lines += kept_lines(report)
    if timings.peak_mem_mb is not None:
        lines.append(f"peak memory {timings.peak_mem_mb:.0f} MB above the inputs")
    checked = report.verification
    sizes = ", ".join(f"{axis}={size}" for axis, size in checked.sizes.items())
    sizes += f", packed {','.join(map(str, checked.lengths))}" if checked.lengths else ""
    rounded = [row for row in checked.rows if row.verdict.budget]  # whole numbers have none, and are exact
    worst = max(rounded, key=lambda row: row.verdict.rel_l2_err / row.verdict.budget)
    whose = worst.backend if worst.id == "file" else worst.id
    lines.append(
        f"{summary(checked)}; at {sizes}; closest: {whose}.{worst.value} "
        f"{worst.verdict.rel_l2_err:.1e} of {worst.verdict.budget:.1e}"
    )
    lines += [f"note: {note}" for note in (*report.notes, *timings.notes)]
    lines += [f"wrote {path}" for path in report.files]
    return lines


def kept_lines(report: RunReport) -> list[str]:
    """What is kept for backward, in MB, and what is rebuilt instead, in ms and in the MB that it saves."""
    graph, call = report.timings.graph, report.call
    if not graph.gradients:
        return []
    kept = kept_bytes(graph, call.sizes, call.io)
    values = ", ".join(f"{name} {megabytes(size)}" for name, size in kept.items()) or "nothing but inputs and outputs"
    lines = [f"kept for backward: {values}; {megabytes(sum(kept.values()))} in all"]
    for stage in report.timings.stages:
        if stage.phase == "rebuild":
            saved = sum(
                bytes_of(buffer_of(graph.values[v], call.sizes, call.io))
                for v in graph.nodes[stage.id].outputs.values()
            )
            origin = stage.id.removesuffix(".rebuild")
            lines.append(
                f"rebuilt: {origin}, {milliseconds(stage.timing.median_ms)} ms for {megabytes(saved)} not kept"
            )
    return lines


def megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB"


def time_cells(timing: Timing) -> tuple[str, str]:
    return milliseconds(timing.median_ms), f"{milliseconds(timing.p20_ms)} - {milliseconds(timing.p80_ms)}"


def milliseconds(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.3f}"


def rate(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"
