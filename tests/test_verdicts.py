"""Verdicts over timings: what the noise allows one to say, and no more; pairs of records."""

from dataclasses import replace

import pytest
from support.records import FULL

from chunkwise.runner.benching.record import Clock
from chunkwise.runner.comparing.compare_records import between_implementations, pairs
from chunkwise.runner.comparing.verdicts import FASTER, SAME, SLOWER, UNCLEAR, verdict
from chunkwise.runner.reporting.clocks import Timing


def timing(median, low, high, noise=1.0, runs=50):
    return Timing(median, low, high, runs, noise)


@pytest.mark.parametrize("after, word", [
    (timing(1.2, 1.15, 1.3), SLOWER), (timing(0.8, 0.7, 0.85), FASTER), (timing(1.01, 0.96, 1.05), SAME),
    (timing(1.015, 1.11, 1.12), SAME),  # of no weight, however clear
    (timing(1.2, 1.05, 1.3), UNCLEAR),  # most runs of one overlap with most of the other
    (timing(1.2, 1.15, 1.3, noise=40.0), UNCLEAR),  # the median itself is not known any better
    (timing(1.01, 0.96, 1.05, noise=5.0), UNCLEAR),  # as far as that can be seen
    (timing(1.2, 1.15, 1.3, runs=5), UNCLEAR),  # five runs say nothing for sure
])  # fmt: skip
def test_the_four_verdicts(after, word):
    found = verdict(timing(1.0, 0.95, 1.1), after)
    assert found.word == word
    assert found.change_pct == pytest.approx(100 * (after.median_ms - 1))


def with_time(median, record=FULL, **what):
    return replace(record, timing=timing(median, 0.99 * median, 1.01 * median), what=replace(record.what, **what))


def test_records_meet_their_like_whatever_the_code_and_the_newest_counts():
    before = [with_time(3.0, code="old"), with_time(1.0, code="older")]
    after = [with_time(1.5, code="new"), with_time(1.0, stage="out")]
    (scan, out) = pairs(before, after)
    assert (scan.before.timing.median_ms, scan.verdict.word) == (1.0, SLOWER)
    assert (out.before, out.verdict) == (None, None)


def test_what_is_used_and_its_place_come_before_the_id():
    """norm and act have changed names; of two alike the first is the first; gate uses another stage than it did."""
    before = [("norm", "l2norm"), ("act", "sigmoid"), ("a", "conv"), ("b", "conv"), ("gate", "kda_gate")]
    after = [("act", "l2norm"), ("norm", "sigmoid"), ("c", "conv"), ("d", "conv"), ("gate", "decay_gate"), ("new", "x")]
    sides = ([with_time(1.0, stage=stage, uses=uses) for stage, uses in side] for side in (before, after))
    met = [tuple(each and each.what.stage for each in (pair.before, pair.after)) for pair in pairs(*sides)]
    assert met == [("norm", "act"), ("act", "norm"), ("a", "c"), ("b", "d"), ("gate", "gate"), (None, "new")]


def test_another_clock_or_workload_is_another_thing():
    other = replace(FULL, clock=Clock("stage inside", "CUDA events", "warm"))
    sizes = replace(FULL, workload=replace(FULL.workload, axes={"B": 2}))
    assert all(pair.verdict is None for pair in pairs([FULL], [other, sizes]))


def test_what_was_not_measured_has_no_verdict():
    (pair,) = pairs([FULL], [replace(FULL, timing=None, why="out of memory")])
    assert pair.verdict is None


def test_two_implementations_of_one_file():
    records = [with_time(1.0), with_time(2.0, implementation="fla 0.6.0"), with_time(1.0, stage="out")]
    (pair,) = between_implementations(records, "chunkwise triton", "fla 0.6.0")
    assert (pair.verdict.word, round(pair.verdict.change_pct)) == (SLOWER, 100)
