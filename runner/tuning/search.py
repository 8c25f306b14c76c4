"""The search: of each kernel what ships, then what is a step away from the best so far, until none is better.

A configuration counts only if verify's budget of its stage holds for it; the last word is a race of the best one with
the first that ships, in one process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...stages._contract import Config
from ..planning.plan import shipped_configs
from ..reporting.clocks import Timing
from .candidates import neighbours
from .child import CRASHED, DONE, FAILED, HUNG, Answer, Child
from .job import Job, kernels_of, plans_of

WRONG = "wrong"
LEAST_GAIN = 1.0
"""Percent by which the best one must be faster, and more where the race says that its noise is more."""


@dataclass(frozen=True)
class Kernel:
    """What a configuration is for. key: planning.tuned.kernel_key. nodes: of the pipeline, that run it. file: of its
    stage. shipped: its configurations, the first one first."""

    key: str
    nodes: tuple[str, ...]
    stage: str
    file: str
    shipped: tuple[Config, ...]


@dataclass(frozen=True)
class Trial:
    """One configuration. what: DONE, or WRONG, FAILED, CRASHED, HUNG; why: in words. ms: where it is right."""

    config: Config
    what: str
    ms: float | None = None
    why: str = ""


@dataclass
class Found:
    """What was found for a kernel. best: None where the first one that ships stays. ms, shipped_ms: of the race, or of
    the first one alone; None where that is not right."""

    kernel: Kernel
    trials: list[Trial] = field(default_factory=list)
    best: Config | None = None
    ms: float | None = None
    shipped_ms: float | None = None


def kernels(job: Job) -> list[Kernel]:
    """Of the job's plans, in their order; a kernel that several nodes run once."""
    found: dict[str, Kernel] = {}
    for plan in plans_of(job.bare(), job.backward):
        for key, step in kernels_of(plan):
            node = step.node
            shipped = tuple(shipped_configs(node, step.launcher, step.axes, job.device))
            kernel = found.setdefault(key, Kernel(key, (), node.stage.name, node.stage.file, shipped))
            found[key] = replace(kernel, nodes=(*kernel.nodes, node.id))
    return list(found.values())


def search(kernel: Kernel, job: Job, child: Child, tries: int, progress: Callable[[str], None]) -> Found:
    """tries: configurations at most, beside those that ship."""
    found, waiting = Found(kernel), list(kernel.shipped)
    most = len(waiting) + tries
    while waiting and len(found.trials) < most:
        waiting = waiting[: most - len(found.trials)]
        child.ask("compile", kernel.key, waiting)  # one that ends the compiler is met again, alone
        for config in waiting:
            progress(f"tune {kernel.nodes[0]} ({kernel.stage}): configuration {len(found.trials) + 1}")
            found.trials.append(trial(kernel, config, child))
        waiting = untried(found, job)
    decide(found, child)
    return found


def trial(kernel: Kernel, config: Config, child: Child) -> Trial:
    """One that is wrong may have written anywhere, and one that failed may have left the device out of use: then the
    next one has a new process."""
    answer: Answer = child.ask("measure", kernel.key, config)
    if answer.what == DONE and isinstance(answer.result, Timing):
        return Trial(config, DONE, answer.result.median_ms)
    if answer.what == DONE or (answer.what == FAILED and child.ask("rest").what != DONE):
        child.end()
    return Trial(config, WRONG if answer.what == DONE else answer.what, why=answer.result)


def untried(found: Found, job: Job) -> list[Config]:
    """A step away from the fastest so far."""
    best, known = fastest(found), [each.config for each in found.trials]
    if best is None:
        return []
    return [each for each in neighbours(best.config, job.io, found.kernel.shipped) if each not in known]


def fastest(found: Found) -> Trial | None:
    right = [each for each in found.trials if each.what == DONE]
    return min(right, key=lambda each: each.ms, default=None)


def decide(found: Found, child: Child) -> None:
    """The fastest against the first that ships, in turns: others' clocks and neighbours were other ones."""
    first, best = found.trials[0], fastest(found)
    found.ms = found.shipped_ms = first.ms
    if best is None or best.config == first.config:
        return
    if first.what != DONE:
        found.best, found.ms = best.config, best.ms
        return
    answer = child.ask("race", found.kernel.key, [first.config, best.config])
    if answer.what == DONE and is_faster(*answer.result):
        shipped, ours = answer.result
        found.best, found.ms, found.shipped_ms = best.config, ours.median_ms, shipped.median_ms


def is_faster(shipped: Timing, ours: Timing) -> bool:
    gain = 100 * (1 - ours.median_ms / shipped.median_ms) if shipped.median_ms else 0.0
    return gain > max(LEAST_GAIN, ours.noise_pct + shipped.noise_pct)


def refused(found: Sequence[Found]) -> list[tuple[Kernel, Trial]]:
    return [(each.kernel, trial) for each in found for trial in each.trials if trial.what != DONE]


REFUSALS = {
    WRONG: "out of budget", FAILED: "failed", CRASHED: "ended its process", HUNG: "hung",
}  # fmt: skip
"""What becomes of a configuration that is not taken, in words."""
