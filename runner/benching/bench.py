"""All the cases of one command, one after the other: what is there already is not measured again."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..planning.plan import resolve_backend
from ..reporting.memory import out_of_memory
from .case import Case, input_set, workload_of
from .gate import NO_GATE, Gate
from .lines import Lines, not_measured, unbound
from .machine import Machine, code_of, this_machine
from .measure import measure
from .peers import Inapplicable, find_peer, first_line
from .record import EAGER, END_TO_END, NOT_VERIFIED, Record
from .store import Store

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Benched:
    """records: of the cases asked for, old and new, in their order. measured: how many of them are new. failures: of
    cases; faults: of formulas."""

    records: tuple[Record, ...]
    measured: int
    failures: tuple[Diagnostic, ...]
    faults: tuple[Diagnostic, ...]


def bench(cases: Sequence[Case], store: Store, vs: Sequence[str], gated: bool, progress: Progress) -> Benched:
    """What ours refuses, or gets wrong, is a failure and a row; what finds no memory is a row."""
    for case in cases:
        code_of(case.op)
    began, before, failures, faults, asked = time.monotonic(), len(store.records), [], [], []
    for done, case in enumerate(cases):
        said = with_time_left(f"[{done + 1}/{len(cases)}] {case.title}", done, len(cases), began, progress)
        machine, lines = this_machine(case.device, case.io, said), None
        try:
            lines = lines_of(case, machine, gated)
            if not is_there(lines, store, vs):
                found = measure(case, machine, vs, gated, said)
                store.add(found.records)
                faults += found.faults
            asked.append(lines)
        except Exception as error:
            if not (isinstance(error, ChunkwiseError) or out_of_memory(error)):
                raise
            failures += [each for each in diagnostics(error) if each.code != codes.OUT_OF_MEMORY]
            lines = not_measured(lines or unbound(case, machine, gated))
            why = diagnostics(error)[0].message
            store.add([lines.record(END_TO_END, ours(case), EAGER, None, why=why)])
            asked.append(lines)
        forget(case)
    return Benched(records_of(asked, store.records), len(store.records) - before, tuple(failures), tuple(faults))


def with_time_left(what: str, done: int, cases: int, began: float, progress: Progress) -> Progress:
    """A progress that says which case it is, and after the first one what the others will take."""
    now = time.monotonic()
    each = (now - began) / done if done else None

    def rest() -> str:
        left = each * (cases - done) - (time.monotonic() - now)
        return f", about {left / 60:.0f} min left" if left > 90 else f", about {left:.0f} s left" if left > 0 else ""

    return lambda text: progress(f"{what}: {text}{rest() if each else ''}")


def lines_of(case: Case, machine: Machine, gated: bool) -> Lines:
    """What the records of a case will have in common, before anything is run."""
    workload = workload_of(case, input_set(case).call)
    return Lines(case, machine, workload, Gate("") if gated else NO_GATE, code_of(case.op))


def is_there(lines: Lines, store: Store, vs: Sequence[str]) -> bool:
    """Whether ours was measured, and every peer that serves the case was, or failed and would again: the whole op is
    what is measured last."""

    def key(implementation: str) -> str:
        return lines.record(END_TO_END, implementation, EAGER, None).key

    case = lines.case
    theirs = filter(None, (implementation(name, case) for name in vs))
    return store.has_timing(key(ours(case))) and all(store.has(key(name)) for name in theirs)


def ours(case: Case) -> str:
    return f"chunkwise {resolve_backend(case.op.backend, case.device, case.io)}"


def implementation(name: str, case: Case) -> str | None:
    """None for a peer that does not serve the case: there is nothing to measure."""
    try:
        return find_peer(name, case).implementation
    except Inapplicable:
        return None
    except Exception:  # somebody else's code: the race says what it raises
        return name


def diagnostics(error: Exception) -> tuple[Diagnostic, ...]:
    if isinstance(error, ChunkwiseError):
        return error.diagnostics
    return (Diagnostic(codes.OUT_OF_MEMORY, f"out of memory: {first_line(error)}"),)


def records_of(asked: Sequence[Lines], records: Sequence[Record]) -> tuple[Record, ...]:
    """The records of the cases asked for, case by case."""
    found = []
    for lines in asked:
        unverified = lines.gate == NO_GATE
        mine = (lines.case.op.spec.name, lines.code, lines.machine.id, lines.workload, unverified)
        found += [each for each in records if mine == belongs_to(each)]
    return tuple({each.id: each for each in found}.values())


def belongs_to(record: Record) -> tuple:
    what, unverified = record.what, record.gate == NOT_VERIFIED
    return what.pipeline, what.code, record.environment_id, record.workload, unverified


def forget(case: Case) -> None:
    """What a case left in the allocator's hands is not the next one's peak."""
    if case.device.type == "cuda":
        torch.cuda.empty_cache()
