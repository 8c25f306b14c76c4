"""Every figure of every record as CSV, one line each."""

import csv
import io
from collections.abc import Iterable

from .record import Record
from .tables import device

COLUMNS = (
    "pipeline", "stage", "uses", "phase", "implementation", "scope", "timer", "l2", "dtype", "mode", "backward", "axes",
    "seqlens", "absent", "median_ms", "p20_ms", "p80_ms", "noise_pct", "runs", "flops", "bytes", "tflops", "gbps",
    "floor_ms", "bound_by", "sol_pct", "peak_mem_mb", "host_us", "rel_l2_err", "budget", "gate", "why", "device",
    "environment_id", "time", "id",
)  # fmt: skip


def csv_text(records: Iterable[Record]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow([flat(record).get(name) for name in COLUMNS])
    return out.getvalue()


def flat(record: Record) -> dict:
    parts = (record, record.error, record.limits, record.timing, record.workload, record.clock, record.what)
    found = {name: value for part in parts if part is not None for name, value in vars(part).items()}
    found |= {"axes": " ".join(f"{axis}={size}" for axis, size in record.workload.axes.items()), "id": record.id}
    lists = {name: ",".join(map(str, getattr(record.workload, name) or ())) for name in ("seqlens", "absent")}
    return found | {"device": device(record)} | lists
