"""Stages on a time line in the trace-event format, which Perfetto and chrome://tracing open.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: complete events (``"ph": "X"``), ``ts``
and ``dur`` in microseconds; metadata events (``"ph": "M"``) name processes and threads.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from ..benching.record import END_TO_END, STAGE_ALONE, STAGE_INSIDE, Record
from . import texts
from .runs import Run

HOW = "medians laid end to end in running order; not the time stamps of one run"


def chrome_trace(runs: Sequence[Run]) -> str:
    """A process for each run, a thread for each implementation and clock of it."""
    events = [event for number, run in enumerate(runs, start=1) for event in run_events(run, number)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"laid out": HOW}}, indent=1) + "\n"


def run_events(run: Run, process: int) -> Iterator[dict]:
    yield named("process_name", process, 0, f"{run.pipeline}: {texts.workload_title(run.workload)}")
    for thread, (name, records) in enumerate(threads(run), start=1):
        yield named("thread_name", process, thread, name)
        start = 0.0
        for record in records:
            event = complete(record, process, thread, start)
            yield event
            start += event["dur"]


def threads(run: Run) -> Iterator[tuple[str, list[Record]]]:
    """(name, timed records in running order)."""
    for implementation in run.implementations:
        for scope in (STAGE_INSIDE, STAGE_ALONE):
            rows = run.stages_of(implementation)
            records = [row.by_scope[scope] for row in rows if row.ms(scope) is not None]
            if records:
                yield f"{implementation}, {scope}", records
    for record in run.ops:
        if record.timing:
            yield f"{record.what.implementation}, {record.clock.scope}", [record]


def named(what: str, process: int, thread: int, name: str) -> dict:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def complete(record: Record, process: int, thread: int, start: float) -> dict:
    return {
        "name": record.what.stage,
        "cat": record.what.phase or END_TO_END,
        "ph": "X",
        "ts": start,
        "dur": 1e3 * record.timing.median_ms,
        "pid": process,
        "tid": thread,
        "args": dict(facts(record)),
    }


def facts(record: Record) -> Iterable[tuple[str, object]]:
    yield "implementation", record.what.implementation
    yield "timed by", texts.clock_words(record.clock)
    yield "p20 - p80", f"{texts.spread(record)} ms"
    if record.limits:
        yield "flops", record.limits.flops
        yield "bytes", record.limits.bytes
        yield "% of floor", texts.percent(record.limits.sol_pct)
        yield "bound by", record.limits.bound_by or texts.NONE
