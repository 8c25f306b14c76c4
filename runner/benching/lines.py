"""The records of one case: what they all have in common, and how it stands for one that could not be measured."""

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from ..planning.dtypes import name_of
from ..reporting.clocks import Timing
from .case import Case
from .gate import NO_GATE, Gate
from .machine import Machine, code_of
from .record import FIRST_CALL, STAGE_INSIDE, Clock, Record, What, Workload

TOLD = {"uses": "", "phase": "", "ran": (), "source": None}
"""Fields of What that only some records have."""
NOT_MEASURED = "not verified: the case could not be measured"


@dataclass(frozen=True)
class Lines:
    """gate, code: as in Record."""

    case: Case
    machine: Machine
    workload: Workload
    gate: Gate
    code: str

    def record(self, stage: str, implementation: str, scope: str, timing: Timing | None, **more) -> Record:
        """more: fields of What and of Record, by name."""
        told = {name: more.pop(name, usual) for name, usual in TOLD.items()}
        what = What(self.case.op.spec.name, stage, implementation=implementation, code=self.code, **told)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        at, facts = self.clock(scope), self.machine.facts
        return Record(what, self.workload, at, timing, facts, self.machine.id, now, gate=self.gate.words, **more)

    def clock(self, scope: str) -> Clock:
        clock = self.machine.clock
        if scope == FIRST_CALL:
            return Clock(scope, "wall clock", "as they were")
        return Clock(scope, clock.timer, "as the step before left it" if scope == STAGE_INSIDE else clock.l2)


def unbound(case: Case, machine: Machine, gated: bool) -> Lines:
    """Of a case whose tensors could not even be made: sizes and mode are what was asked for."""
    sizes, io = dict(case.sizes), name_of(case.io)
    workload = Workload(case.name, sizes, io, case.op.mode, case.seqlens, case.backward, case.absent)
    return Lines(case, machine, workload, Gate("") if gated else NO_GATE, code_of(case.op))


def not_measured(lines: Lines) -> Lines:
    """Of a case that could not be measured: out of memory, say."""
    return lines if lines.gate == NO_GATE else replace(lines, gate=Gate(NOT_MEASURED))
