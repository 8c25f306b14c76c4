"""The stages of one case: each alone, and each inside a run of all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..graphs.flops import flops
from ..graphs.graph import Graph
from ..planning.plan import Plan, Step
from ..reporting.clocks import Clock, Laps, Timing
from ..reporting.timing import moved_bytes, passes
from ..verification.staged import nan_filled
from .case import Case, InputSet
from .gate import require_written
from .kernels import kernels_of
from .record import Kernel


@dataclass(frozen=True)
class StageTimes:
    """One step of the plans. flops, bytes: of one run."""

    step: Step
    alone: Timing
    inside: Timing
    flops: float
    bytes: int
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class AllStages:
    """graph: what ran, with its backward pass where that ran. times: in running order. inside: of all the stages of one
    run together."""

    graph: Graph
    plans: tuple[Plan, ...]
    times: tuple[StageTimes, ...]
    inside: Timing

    @property
    def implementation(self) -> str:
        return f"chunkwise {self.plans[0].backend}"

    @property
    def alone(self) -> Timing:
        return sum_of([each.alone for each in self.times])

    @property
    def flops(self) -> float:
        return sum(each.flops for each in self.times)

    @property
    def bytes(self) -> int:
        """What every stage reads and writes."""
        return sum(each.bytes for each in self.times)


def time_stages(case: Case, sets: Sequence[InputSet], clock: Clock, progress: Callable[[str], None]) -> AllStages:
    """Every set is run once into buffers of its own, full of nan, and kept: a stage alone then takes them in turn."""
    with torch.no_grad():
        ways = [passes(given.call, case.backward) for given in sets]
        plans = tuple(ways[0][0])
        steps: dict[str, Step] = {}
        runs: dict[str, list[Callable[[], None]]] = {}
        for given, (_, run_all) in zip(sets, ways):
            require_written(case, given, run_all(keeping(steps, runs), nan_filled))
        inside, together = clock.laps(lambda number, lap: ways[number % len(ways)][1](lapped(lap)))
        found = []
        for name, step in steps.items():
            progress(f"time {name}")
            (alone,) = clock.race([in_turn(runs[name])], ahead=True)
            plan = next(plan for plan in plans if any(step is each for each in plan.steps))
            kernels = kernels_of(runs[name][0], clock, case.device)
            counted, moved = flops(step.node, plan.sizes), moved_bytes(plan, step)
            found.append(StageTimes(step, alone, inside[name], counted, moved, kernels))
    return AllStages(plans[0].graph, plans, tuple(found), together)


def keeping(steps: dict[str, Step], runs: dict[str, list[Callable[[], None]]]):
    """An observer that runs each step and keeps what runs it again."""

    def observe(step: Step, run: Callable[[], None], outputs: Mapping) -> None:
        run()
        steps[step.node.id] = step
        runs.setdefault(step.node.id, []).append(run)

    return observe


def lapped(lap: Laps):
    return lambda step, run, outputs: lap(step.node.id, run)


def in_turn(runs: Sequence[Callable[[], None]]):
    return lambda number: runs[number % len(runs)]()


def sum_of(timings: Sequence[Timing]) -> Timing:
    """Of stages that were timed one by one; their noises add up as those of independent figures do."""
    total = sum(each.median_ms for each in timings)
    noise = sum((each.noise_pct * each.median_ms) ** 2 for each in timings) ** 0.5 / total if total else 100.0
    spread = sum(each.p20_ms for each in timings), sum(each.p80_ms for each in timings)
    return Timing(total, *spread, min((each.runs for each in timings), default=0), noise)
