"""Clocks: how long something takes, as a median with its spread and its noise.

On a GPU CUDA events, the L2 cache overwritten before each run; on a CPU the wall clock, caches as the last run left
them, one thread pool as torch has it. A run is a function of the number of its round, so that it can take other input
tensors each time; several runs race: each has its turn in every round until it has enough of them, so that what
disturbs the machine disturbs all.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch

Run = Callable[[int], object]
Laps = Callable[[str, Callable[[], object]], None]
"""Is handed a step's name and what runs it."""

CACHE_BYTES = 256 * 2**20
WARMUP, LEAST, MOST, SECONDS = 2, 6, 50, 0.25
PATIENCE = 40
"""Times SECONDS: what takes longer has fewer than LEAST runs."""
LAP_SHARE = 4
"""Times SECONDS too: laps are of many steps at once."""
HEAD_START = 2
"""Times what the host needs to enqueue a run: the device is kept busy for so long, so that the host is done when the
run starts."""
CYCLES = 2e9
"""A second of a device, about: none has a clock much faster."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one thing: median, 20th and 80th percentile, and the number of runs.

    noise_pct: half of the 95 % confidence interval of the median, in percent of it; 100 for a single run.
    """

    median_ms: float
    p20_ms: float
    p80_ms: float
    runs: int
    noise_pct: float


class RaceClock(Protocol):
    """timer, l2: what it is and how it leaves the caches, in words."""

    timer: str
    l2: str

    def once(self, run: Callable[[], object]) -> float:
        """Milliseconds of one run."""

    def race(self, runs: Sequence[Run], ahead: bool = False) -> list[Timing]:
        """Each run's time. ahead: of the device alone, which never waits for the host."""

    def peak_mb(self, run: Run) -> float | None:
        """MB above what was allocated before the call, inputs not counted; None where it cannot be read."""


class Clock(RaceClock, Protocol):
    """What times a single process."""

    def laps(self, run_all: Callable[[int, Laps], object]) -> tuple[Mapping[str, Timing], Timing]:
        """The time of each step inside a run of all of them, by name, and of all the steps of a run together: where
        something disturbs now one step and now another, the sum of their medians would be too small."""

    def host_us(self, run: Run) -> float | None:
        """Microseconds until a call returns, with its work enqueued; None where the call does the work."""

    def captured(self, run: Run) -> Run | None:
        """What replays all that a run launches, without the host, on the tensors of round 0; None without a device."""


@cache
def clock_of(device: torch.device) -> Clock:
    """One for a device: on a GPU it holds CACHE_BYTES."""
    return CudaClock(device) if device.type == "cuda" else WallClock()


def summary(samples: Sequence[float]) -> Timing:
    if len(samples) < 2:
        return Timing(samples[0], samples[0], samples[0], len(samples), 100.0)
    cuts, median = statistics.quantiles(samples, n=5, method="inclusive"), statistics.median(samples)
    ordered, (low, high) = sorted(samples), median_ranks(len(samples))
    noise = 50 * (ordered[high] - ordered[low]) / median if median else 100.0
    return Timing(median, cuts[0], cuts[-1], len(samples), noise)


def summaries(samples: Mapping[str, Sequence[float]]) -> tuple[dict[str, Timing], Timing]:
    """Of each step, and of the sum of one run's steps. samples: by step, in the order of the runs."""
    sums = [sum(each) for each in zip(*samples.values(), strict=True)]
    return {name: summary(mine) for name, mine in samples.items()}, summary(sums)


def median_ranks(count: int) -> tuple[int, int]:
    """Places, from 0, of the ordered samples between which the true median lies at least 95 times in 100, whatever the
    distribution: (n -+ 1.96 sqrt(n)) / 2. Of fewer than six samples not even all suffice."""
    half = 0.98 * math.sqrt(count)
    return max(0, math.floor(count / 2 - half) - 1), min(count - 1, math.ceil(count / 2 + half))


class WallClock:
    timer, l2 = "wall clock", "warm"

    def once(self, run: Callable[[], object]) -> float:
        return 1e3 * seconds(run)

    def race(self, runs: Sequence[Run], ahead: bool = False) -> list[Timing]:
        samples: list[list[float]] = [[] for _ in runs]
        for run in runs:
            warm_up(run)
        for number in range(MOST):
            for mine, run in zip(samples, runs):
                if wants_more(mine):
                    mine.append(self.once(lambda: run(number)))  # noqa: B023
        return [summary(mine) for mine in samples]

    def laps(self, run_all: Callable[[int, Laps], object]) -> tuple[dict[str, Timing], Timing]:
        samples: dict[str, list[float]] = {}
        whole: list[float] = []

        def lap(name: str, run: Callable[[], object]) -> None:
            samples.setdefault(name, []).append(1e3 * seconds(run))

        while wants_more(whole, LAP_SHARE):
            whole.append(1e3 * seconds(lambda: run_all(len(whole), lap)))
        return summaries(samples)

    def host_us(self, run: Run) -> None:
        return None

    def peak_mb(self, run: Run) -> None:
        return None

    def captured(self, run: Run) -> None:
        return None


class CudaClock:
    timer, l2 = "CUDA events", "cold"

    def __init__(self, device: torch.device):
        self.device = device
        self.cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device=device)

    def once(self, run: Callable[[], object]) -> float:
        with self.in_order():
            self.start_cold()
            start, end = self.between(run)
        return start.elapsed_time(end)

    def race(self, runs: Sequence[Run], ahead: bool = False) -> list[Timing]:
        pairs: list[list[tuple]] = [[] for _ in runs]
        with self.in_order():
            for run in runs:
                warm_up(run)
            leads = [self.lead(lambda: run(0)) if ahead else 0.0 for run in runs]  # noqa: B023
            counts = [self.count(lambda: run(0)) for run in runs]  # noqa: B023
            for number in range(max(counts)):
                for mine, run, lead, count in zip(pairs, runs, leads, counts):
                    if number < count:
                        self.start_cold(lead)
                        mine.append(self.between(lambda: run(number)))  # noqa: B023
        return [summary([start.elapsed_time(end) for start, end in mine]) for mine in pairs]

    def laps(self, run_all: Callable[[int, Laps], object]) -> tuple[dict[str, Timing], Timing]:
        pairs: dict[str, list[tuple]] = {}

        def lap(name: str, run: Callable[[], object]) -> None:
            pairs.setdefault(name, []).append(self.between(run))

        def plain(name: str, run: Callable[[], object]) -> None:
            run()

        with self.in_order():
            run_all(0, plain)
            lead = self.lead(lambda: run_all(0, plain))
            for number in range(self.count(lambda: run_all(0, plain), LAP_SHARE)):
                self.start_cold(lead)
                run_all(number, lap)
        return summaries({name: [start.elapsed_time(end) for start, end in mine] for name, mine in pairs.items()})

    def host_us(self, run: Run) -> float:
        samples = []
        with self.in_order():
            for number in range(LEAST * 4):
                samples.append(seconds(lambda: run(number)))  # noqa: B023
                torch.cuda.synchronize()
        return 1e6 * statistics.median(samples)

    def peak_mb(self, run: Run) -> float:
        with self.in_order():
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            run(0)
            torch.cuda.synchronize()
            return (torch.cuda.max_memory_allocated() - before) / 1e6

    def captured(self, run: Run) -> Run:
        """It runs once before, on the side: a capture neither compiles nor copies from the host."""
        with self.in_order():
            aside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                run(0)
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(graph):
                run(0)
        return lambda _: graph.replay()

    @contextmanager
    def in_order(self):
        """On the clock's device, and with everything done at the end."""
        with torch.cuda.device(self.device):
            yield
            torch.cuda.synchronize()

    def count(self, run: Callable[[], object], share: int = 1) -> int:
        """How many turns it takes, by the time of one; as wants_more has it."""
        torch.cuda.synchronize()
        once = max(seconds(lambda: (run(), torch.cuda.synchronize())), 1e-5) / share
        return max(1, min(MOST, max(LEAST, int(SECONDS / once)), int(PATIENCE * SECONDS / once)))

    def lead(self, run: Callable[[], object]) -> float:
        """Seconds by which the device has to wait for the host, so that it never waits within the run."""
        torch.cuda.synchronize()
        return HEAD_START * seconds(run)

    def start_cold(self, lead: float = 0.0) -> None:
        """lead: seconds for which the device is kept busy first."""
        self.cache.zero_()
        if lead:
            torch.cuda._sleep(int(lead * CYCLES))

    def between(self, run: Callable[[], object]) -> tuple:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        return start, end


def warm_up(run: Run) -> None:
    began = time.perf_counter()
    for number in range(WARMUP):
        run(number)
        if time.perf_counter() - began > SECONDS:
            break


def wants_more(samples_ms: Sequence[float], share: int = 1) -> bool:
    """Whether someone in a race takes another turn: LEAST turns and SECONDS of its own time, a slow one fewer, MOST at
    the most. share: times SECONDS."""
    count, spent = len(samples_ms), sum(samples_ms) / 1e3 / share
    return count < MOST and (count < LEAST or spent < SECONDS) and (not count or spent < PATIENCE * SECONDS)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
