"""One case, measured: the gate, every stage by two clocks, the whole op and its peers in one race; all as records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ..diagnostics.errors import Diagnostic
from ..graphs.flops import require_flops
from .case import Case, InputSet, input_sets, workload_of
from .device_rates import DeviceRates, measured_again
from .gate import NO_GATE, Gate, pass_gate
from .limits import impossible, limits
from .lines import Lines
from .machine import Machine, code_of
from .racers import Racer, first_call_ms, peer_racer
from .record import END_TO_END, Record
from .stage_clock import AllStages, time_stages
from .stage_rows import stage_records, sum_records
from .truth import truth_at
from .whole_op import backward_of_pytorch, ours, turns
from .whole_rows import whole_records

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """records: in the order of a table. faults: formulas that cannot be true."""

    records: tuple[Record, ...]
    faults: tuple[Diagnostic, ...] = ()


def measure(case: Case, machine: Machine, vs: Sequence[str], gated: bool, progress: Progress) -> Measured:
    """vs: names of peers. Raises ChunkwiseError where the gate does not open, or where ours cannot run."""
    sets = input_sets(case)
    call = sets[0].call
    call.forward_plan()  # what no kernel or constraint allows is said before anything is verified
    require_flops(call.graph, call.sizes)
    progress("first call")
    if case.backward:
        backward_of_pytorch(case.device)
    first_ms = first_call_ms(ours(case), sets[0], case.device)
    gate = pass_gate(case, progress) if gated else NO_GATE
    lines = Lines(case, machine, workload_of(case, call), gate, code_of(case.op))
    stages = time_stages(case, sets, machine.clock, progress)
    mine = Racer(stages.implementation, turns(ours(case), sets), first_ms, gate.errors.get(END_TO_END))
    racers = [mine, *peers_of(case, sets, gate, vs, progress)]
    records = [*stage_records(lines, stages), *sum_records(lines, stages)]
    progress("time the whole op")
    records += whole_records(lines, stages, racers)
    return Measured(tuple(records), tuple(faults(stages, machine, case.io)))


def peers_of(
    case: Case, sets: Sequence[InputSet], gate: Gate, vs: Sequence[str], progress: Progress
) -> Iterator[Racer]:
    """The truth that they are held against is made once, where anyone asks for it."""
    truth = truth_at(gate) if vs and gate.case else None
    for name in vs:
        progress(f"prepare {name}")
        yield peer_racer(name, case, sets, truth)


def faults(stages: AllStages, machine: Machine, io: torch.dtype) -> list[Diagnostic]:
    """Stages that alone would have done what this device cannot. What it can is measured again before that is said."""
    if not machine.rates or not impossible_at(stages, machine.rates):
        return []
    return impossible_at(stages, measured_again(machine.device, io, machine.rates))


def impossible_at(stages: AllStages, rates: DeviceRates) -> list[Diagnostic]:
    found = [(each, limits(each.flops, each.bytes, each.alone, rates)) for each in stages.times]
    return list(filter(None, (impossible(each.step.node, reached, rates) for each, reached in found)))
