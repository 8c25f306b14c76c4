"""The records of whole ops: ours and its peers in one race, ours also as a CUDA graph, and the first call of each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..diagnostics.errors import ChunkwiseError
from ..reporting.clocks import Timing
from .gap import gap_notes
from .limits import limits
from .lines import Lines
from .peers import first_line
from .racers import Racer
from .record import EAGER, END_TO_END, FIRST_CALL, REPLAY, Limits, Record
from .stage_clock import AllStages
from .traffic import edges, op_bytes


def whole_records(lines: Lines, stages: AllStages, racers: Sequence[Racer]) -> Iterator[Record]:
    """racers: ours first. The op eager comes last of each: where it is there, a resumed run finds all of it there."""
    timings = iter(lines.machine.clock.race([racer.run for racer in racers if racer.run]))
    for place, raced in enumerate(racers):
        racer, timing = raced.after(next(timings) if raced.run else None)
        if racer.first_ms is not None:
            once = Timing(racer.first_ms, racer.first_ms, racer.first_ms, 1, 100.0)
            yield lines.record(END_TO_END, racer.implementation, FIRST_CALL, once)
        more = of_ours(lines, stages, racer, timing) if place == 0 else []
        yield from more or [eager_record(lines, stages, racer, timing)]


def eager_record(lines: Lines, stages: AllStages, racer: Racer, timing: Timing | None, **more) -> Record:
    clock = lines.machine.clock
    if timing:
        more |= {"limits": op_limits(lines, stages, timing), "peak_mem_mb": clock.peak_mb(racer.run)}
        more |= {"host_us": clock.host_us(racer.run)}
    told = {"ran": racer.ran, "error": racer.error, "why": racer.why, "notes": racer.notes}
    return lines.record(END_TO_END, racer.implementation, EAGER, timing, **told, **more)


def of_ours(lines: Lines, stages: AllStages, racer: Racer, timing: Timing) -> list[Record]:
    """The op as a CUDA graph, where there are such, and eager, with its edges and what its gap comes from."""
    replay = replay_records(lines, stages, racer)
    handed_over = edges(stages.graph, lines.workload.axes, lines.case.io)
    eager = eager_record(lines, stages, racer, timing, edges=handed_over)
    gap = gap_notes(stages.alone, stages.inside, timing, eager.host_us, replay[0].timing if replay else None)
    refused = dict.fromkeys(note for plan in stages.plans for note in plan.notes)
    return [*replay, replace(eager, notes=(*gap, *refused))]


def replay_records(lines: Lines, stages: AllStages, racer: Racer) -> list[Record]:
    """One, or none on a CPU. A capture that fails is a row that says so."""
    clock = lines.machine.clock
    try:
        replay = clock.captured(racer.run)
        timing = clock.race([replay])[0] if replay else None
    except (RuntimeError, ChunkwiseError) as error:
        why = f"no CUDA graph: {first_line(error)}"
        return [lines.record(END_TO_END, racer.implementation, REPLAY, None, why=why)]
    if timing is None:
        return []
    found = op_limits(lines, stages, timing)
    return [lines.record(END_TO_END, racer.implementation, REPLAY, timing, limits=found)]


def op_limits(lines: Lines, stages: AllStages, timing: Timing) -> Limits:
    """The flops that our stages count, whoever did them otherwise; the bytes that nobody can do without."""
    return limits(stages.flops, op_bytes(stages.plans), timing, lines.machine.rates)
