"""How long each stage and the whole op take, and how that was measured.

Every figure is the median of its runs; the spread is the 20th to 80th percentile. What clocks do is in clocks.py.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ..calling.call import Call
from ..graphs.flops import flops
from ..graphs.graph import Graph
from ..planning.execute import Maker, Observer, Values, execute, run_step
from ..planning.plan import Plan, Step, buffer_of, bytes_of
from ..verification.generate import make_cotangents
from .clocks import RaceClock, Timing, clock_of


@dataclass(frozen=True)
class StageTiming:
    """One stage alone. flops, bytes: of one call, from the contract and the tensors that it reads and writes. tuned: as
    in planning.plan.Step."""

    id: str
    stage: str
    phase: str
    backend: str
    timing: Timing
    flops: float
    bytes: int
    tuned: bool = False

    @property
    def tflops(self) -> float:
        return self.flops / self.timing.median_ms / 1e9 if self.timing.median_ms else 0.0

    @property
    def gbps(self) -> float:
        return self.bytes / self.timing.median_ms / 1e6 if self.timing.median_ms else 0.0


@dataclass(frozen=True)
class Timings:
    """graph: what ran, with its backward pass if that ran. how: the clock and the state of the caches, in words.

    notes: what the plans say about implementations that were refused or missing.
    """

    graph: Graph
    stages: tuple[StageTiming, ...]
    end_to_end: Timing
    how: str
    peak_mem_mb: float | None
    notes: tuple[str, ...] = ()

    @property
    def sum_of_stages_ms(self) -> float:
        return sum(stage.timing.median_ms for stage in self.stages)

    def share_pct(self, stage: StageTiming) -> float:
        total = self.sum_of_stages_ms
        return 100 * stage.timing.median_ms / total if total else 0.0


def time_call(
    call: Call, backward: bool = False, progress: Callable[[str], None] = str, clock: RaceClock | None = None
) -> Timings:
    """Warm up, then time every stage on the values that the pipeline really hands it, then the whole op.

    backward: the forward pass with what it keeps, the rebuild and the backward pass, for random cotangents.
    clock: where every rank must run a thing equally often (parallel/rank_clock.py).
    """
    clock = clock or clock_of(call.device)
    plans, run_all = passes(call, backward)
    stages: list[StageTiming] = []

    def observe(step: Step, run: Callable[[], None], outputs: Mapping) -> None:
        progress(f"time {step.node.id}")
        stages.append(stage_timing(plans[0], step, clock.race([lambda _: run()], ahead=True)[0]))

    run_all(run_step)
    run_all(observe)
    progress("time the whole op")
    run_all()
    (whole,) = clock.race([lambda _: run_all()])
    how = "CUDA events, cold L2" if call.device.type == "cuda" else "wall clock on the CPU, warm caches"
    notes = tuple(dict.fromkeys(note for plan in plans for note in plan.notes))
    peak = clock.peak_mb(lambda _: run_all())
    return Timings(plans[0].graph, tuple(stages), whole, how, peak, notes)


def passes(call: Call, backward: bool) -> tuple[list[Plan], Callable]:
    """(the plans of a call, a function that runs them all and returns their results). It takes an observer, and what
    makes the buffers; without an observer the plans run as in a user's call."""
    inputs = call.contiguous
    if not backward:
        plan = call.forward_plan()

        def run_forward(observe: Observer | None = None, make: Maker = torch.empty) -> Values:
            if observe is None:
                return call.run_forward(inputs)
            return execute(plan, inputs, call.params, call.seqs, observe, make)

        return [plan], run_forward
    joint = call.joint(call.trainable(), call.wanted)
    forward, back = call.forward_plan(joint), call.backward_plan(joint)
    cotangents = make_cotangents(joint, call.sizes, call.io, call.device)

    def run_all(observe: Observer | None = None, make: Maker = torch.empty) -> Values:
        def run(prepared: Callable[[Values, Graph], Values], plan: Plan, given: Values) -> Values:
            if observe is None:
                return prepared(given, joint)
            return execute(plan, given, call.params, call.seqs, observe, make)

        results = run(call.run_forward, forward, inputs)
        kept = {name: results[name] for name in joint.kept}
        gradients = run(call.run_backward, back, {**inputs, **cotangents, **kept})
        return results | {f"d_{name}": x for name, x in gradients.items()}

    return [forward, back], run_all


def stage_timing(plan: Plan, step: Step, timing: Timing) -> StageTiming:
    node = step.node
    counted, moved = flops(node, plan.sizes), moved_bytes(plan, step)
    return StageTiming(node.id, node.stage.name, node.phase, step.backend, timing, counted, moved, step.tuned)


def sent_bytes(plan: Plan, step: Step) -> int:
    """Of the states of all ranks, or of the rows of all, what is not this one's; of the next rank's state, all."""
    made = {port: buffer for port, buffer in step.outputs.items() if buffer}
    if "RANKS" in step.axes:
        ranks, here = step.axes["RANKS"], sum(map(bytes_of, made.values()))
        return here if ranks == 1 else here * (ranks - 1) // ranks
    total = 0
    for port, buffer in made.items():
        taken = step.node.inputs.get(port.removesuffix("s")) or step.node.inputs[f"{port}s"]
        pair = (buffer, buffer_of(plan.graph.values[taken], plan.sizes, plan.io))
        own, every = sorted(pair, key=lambda each: math.prod(each.shape))
        total += bytes_of(every) - math.prod(own.shape) * every.dtype.itemsize
    return total


def moved_bytes(plan: Plan, step: Step) -> int:
    """Each input read once, each output written once; of states in slots, those of this call's sequences; of a stage of
    communication, what comes in from the other ranks."""
    if step.node.stage.transport:
        return sent_bytes(plan, step)
    sizes = {**plan.sizes, "SLOTS": min(plan.sizes.get("N", 0), plan.sizes.get("SLOTS", 0))}
    over = [name for name in step.node.outputs.values() if name in plan.graph.mutated]
    moved = [plan.graph.values[name] for name in (*step.node.inputs.values(), *over) if name]
    read = sum(bytes_of(buffer_of(value, sizes, plan.io)) for value in moved)
    return read + sum(bytes_of(b) for b in step.outputs.values() if b)
