"""A clock for what all ranks run together: each as often as the others, or a collective would wait for ever."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from ..reporting.clocks import Run, Timing, clock_of, summary
from .exchange_stage import Ranks
from .lost_rank import meeting

WARMUP, RUNS = 1, 9


class RankClock:
    """All ranks meet before every run, so that a stage of communication is not charged with another one's lateness;
    the rest as the clock of the device has it."""

    def __init__(self, ranks: Ranks, device: torch.device):
        self.ranks, alone = ranks, clock_of(device)
        self.timer, self.l2, self.once, self.peak_mb = alone.timer, alone.l2, alone.once, alone.peak_mb

    def race(self, runs: Sequence[Run], ahead: bool = False) -> list[Timing]:
        return [self.together(run) for run in runs]

    def together(self, run: Run) -> Timing:
        samples = []
        for number in range(WARMUP + RUNS):
            with meeting("timing", self.ranks.rank, self.ranks.size):
                dist.barrier(self.ranks.group)
            samples.append(self.once(lambda: run(number)))  # noqa: B023
        return summary(samples[WARMUP:])
