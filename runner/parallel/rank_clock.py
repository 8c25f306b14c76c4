"""A clock for what all ranks run together: each as often as the others, or a collective would wait for ever."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from ..reporting.timing import CACHE_BYTES, Clock, Timing, summary
from .exchange_stage import Ranks

WARMUP, RUNS = 1, 9


def rank_clock(ranks: Ranks, device: torch.device) -> Clock:
    """All ranks meet before every run, so that a stage of communication is not charged with another one's lateness.
    On a GPU: CUDA events, the L2 cache overwritten before."""
    run_once = timed_on_gpu(device) if device.type == "cuda" else timed_on_host

    def clock(run: Callable[[], object]) -> Timing:
        samples = []
        for _ in range(WARMUP + RUNS):
            dist.barrier(ranks.group)
            samples.append(run_once(run))
        return summary(samples[WARMUP:])

    return clock


def timed_on_host(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e3


def timed_on_gpu(device: torch.device) -> Callable[[Callable[[], object]], float]:
    cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device=device)

    def timed(run: Callable[[], object]) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        cache.zero_()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize(device)
        return start.elapsed_time(end)

    return timed
