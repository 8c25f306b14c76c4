"""Clocks: the summary of samples, whose turn it is, and the time between two steps of a run."""

import time

import pytest
import torch

from chunkwise.runner.reporting import clocks
from chunkwise.runner.reporting.clocks import LEAST, WallClock, clock_of, median_ranks, summaries, summary


def test_a_summary_has_the_median_its_spread_and_its_noise():
    found = summary([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (found.median_ms, found.runs) == (3.0, 5)
    assert (found.p20_ms, found.p80_ms) == pytest.approx((1.8, 23.2))
    assert found.noise_pct == pytest.approx(50 * 99 / 3)
    assert summary([7.0]).noise_pct == 100


@pytest.mark.parametrize("count", [7, 20, 50])
def test_the_true_median_lies_between_the_ranks_at_least_95_times_in_100(count):
    samples = torch.rand(20_000, count, generator=torch.Generator().manual_seed(0)).sort(dim=1).values
    low, high = median_ranks(count)
    inside = (samples[:, low] <= 0.5) & (samples[:, high] >= 0.5)
    assert 0.95 <= inside.float().mean() < 0.995


def test_in_a_race_each_has_its_turn_in_every_round():
    turns = []
    timings = WallClock().race([lambda number, name=name: turns.append((number, name)) for name in "ab"])
    measured = turns[-2 * timings[0].runs :]
    assert measured == [(number, name) for number in range(timings[0].runs) for name in "ab"]
    assert timings[0].runs >= LEAST


def test_a_slow_one_does_not_keep_the_others_from_their_turns(monkeypatch):
    monkeypatch.setattr(clocks, "SECONDS", 0.005)
    quick, slow = WallClock().race([lambda _: time.sleep(1e-5), lambda _: time.sleep(0.11)])
    assert slow.runs <= 2 and quick.runs >= LEAST  # 110 ms twice is more than 40 times SECONDS


def test_laps_are_the_times_of_the_steps_and_not_of_what_is_between():
    def run_all(number, lap):
        lap("short", lambda: time.sleep(0.002))
        time.sleep(0.01)
        lap("long", lambda: time.sleep(0.02))

    found, together = WallClock().laps(run_all)
    assert 22 <= together.median_ms < 30
    assert 2 <= found["short"].median_ms < 10 < 20 <= found["long"].median_ms


def test_the_sum_of_laps_is_that_of_each_run():
    """One of the two steps is disturbed in every run: the medians alone would hide that."""
    found, together = summaries({"one": [1, 9, 1, 9, 1, 9, 1], "two": [9, 1, 9, 1, 9, 1, 1]})
    assert (found["one"].median_ms, found["two"].median_ms, together.median_ms) == (1, 1, 10)


def test_a_cpu_enqueues_nothing_and_has_no_peak_to_read():
    clock = clock_of(torch.device("cpu"))
    assert (clock.host_us(print), clock.peak_mb(print)) == (None, None)
