"""How long each stage and the whole op take, and how that was measured.

On a GPU: CUDA events around each run, the L2 cache overwritten before it. On a CPU: the wall clock, one thread
pool as torch has it. Every figure is the median of its runs; the spread is the 20th to 80th percentile.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ..calling.function import Call
from ..graphs.flops import flops
from ..graphs.graph import Graph
from ..planning.execute import execute, run_step
from ..planning.plan import Plan, Step, buffer_of, bytes_of
from ..verification.generate import make_cotangents

Clock = Callable[[Callable[[], object]], "Timing"]
CACHE_BYTES = 256 * 2**20
WARMUP, LEAST, MOST, SECONDS = 2, 5, 50, 0.25


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one thing: median, 20th and 80th percentile, and the number of runs."""

    median_ms: float
    p20_ms: float
    p80_ms: float
    runs: int


@dataclass(frozen=True)
class StageTiming:
    """One stage alone. flops, bytes: of one call, from the contract and the tensors that it reads and writes."""

    id: str
    stage: str
    phase: str
    backend: str
    timing: Timing
    flops: float
    bytes: int

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
    call: Call, backward: bool = False, progress: Callable[[str], None] = str, clock: Clock | None = None
) -> Timings:
    """Warm up, then time every stage on the values that the pipeline really hands it, then the whole op.

    backward: the forward pass with what it keeps, the rebuild and the backward pass, for random cotangents.
    clock: where every rank must run a thing equally often (parallel/rank_clock.py).
    """
    clock = clock or (cuda_clock(call.device) if call.device.type == "cuda" else wall_clock)
    plans, run_all = passes(call, backward)
    stages: list[StageTiming] = []

    def observe(step: Step, run: Callable[[], None], outputs: Mapping) -> None:
        progress(f"time {step.node.id}")
        stages.append(stage_timing(plans[0], step, clock(run)))

    run_all(run_step)
    run_all(observe)
    progress("time the whole op")
    whole = clock(lambda: run_all(run_step))
    how = "CUDA events, cold L2" if call.device.type == "cuda" else "wall clock on the CPU, warm caches"
    notes = tuple(dict.fromkeys(note for plan in plans for note in plan.notes))
    peak = peak_memory(call.device, lambda: run_all(run_step))
    return Timings(plans[0].graph, tuple(stages), whole, how, peak, notes)


def passes(call: Call, backward: bool) -> tuple[list[Plan], Callable]:
    """(the plans of a call, a function that runs them all with an observer)."""
    inputs = call.contiguous
    if not backward:
        plan = call.forward_plan()
        return [plan], lambda observe: execute(plan, inputs, call.params, call.seqs, observe)
    joint = call.joint(call.trainable(), call.wanted)
    forward, back = call.forward_plan(joint), call.backward_plan(joint)
    cotangents = make_cotangents(joint, call.sizes, call.io, call.device)

    def run_all(observe) -> None:
        results = execute(forward, inputs, call.params, call.seqs, observe)
        kept = {name: results[name] for name in joint.kept}
        execute(back, {**inputs, **cotangents, **kept}, call.params, call.seqs, observe)

    return [forward, back], run_all


def stage_timing(plan: Plan, step: Step, timing: Timing) -> StageTiming:
    node = step.node
    counted, moved = flops(node, plan.sizes), moved_bytes(plan, step)
    return StageTiming(node.id, node.stage.name, node.phase, step.backend, timing, counted, moved)


def moved_bytes(plan: Plan, step: Step) -> int:
    """Each input read once, each output written once; of states in slots, those of this call's sequences; of what all
    ranks send, what the others do."""
    if step.node.stage.transport:
        ranks = plan.sizes["RANKS"]
        here = sum(bytes_of(b) for b in step.outputs.values() if b)
        return here if ranks == 1 else here * (ranks - 1) // ranks
    sizes = {**plan.sizes, "SLOTS": min(plan.sizes.get("N", 0), plan.sizes.get("SLOTS", 0))}
    over = [name for name in step.node.outputs.values() if name in plan.graph.mutated]
    moved = [plan.graph.values[name] for name in (*step.node.inputs.values(), *over) if name]
    read = sum(bytes_of(buffer_of(value, sizes, plan.io)) for value in moved)
    return read + sum(bytes_of(b) for b in step.outputs.values() if b)


def summary(samples: list[float]) -> Timing:
    if len(samples) < 2:
        return Timing(samples[0], samples[0], samples[0], len(samples))
    cuts = statistics.quantiles(samples, n=5, method="inclusive")
    return Timing(statistics.median(samples), cuts[0], cuts[-1], len(samples))


def wall_clock(run: Callable[[], object]) -> Timing:
    samples, began = [], time.perf_counter()
    for _ in range(WARMUP):
        run()
        if time.perf_counter() - began > SECONDS:
            break
    began = time.perf_counter()
    while len(samples) < LEAST or (len(samples) < MOST and time.perf_counter() - began < SECONDS):
        start = time.perf_counter()
        run()
        samples.append((time.perf_counter() - start) * 1e3)
        if time.perf_counter() - began > 8 * SECONDS:
            break
    return summary(samples)


def cuda_clock(device: torch.device) -> Callable[[Callable[[], object]], Timing]:
    cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device=device)

    def clock(run: Callable[[], object]) -> Timing:
        with torch.cuda.device(device):
            for _ in range(WARMUP):
                run()
            runs = max(LEAST, min(MOST, int(SECONDS / max(once(run), 1e-5))))
            pairs = []
            for _ in range(runs):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                cache.zero_()
                start.record()
                run()
                end.record()
                pairs.append((start, end))
            torch.cuda.synchronize()
        return summary([start.elapsed_time(end) for start, end in pairs])

    return clock


def once(run: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def peak_memory(device: torch.device, run: Callable[[], object]) -> float | None:
    """MB above what was allocated before the call, inputs not counted; None where it cannot be read."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 1e6
