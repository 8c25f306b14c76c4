"""One set of records out of several rounds of the same measurements, each in a process of its own.

Between processes more changes than within one: where memory lies, which clock the device has found, what else runs. So
the noise is what the medians of the rounds show where that is more than each round had by itself.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ..benching.record import Record
from ..reporting.clocks import Timing, summary
from .compare_records import thing


def over_rounds(rounds: Sequence[Sequence[Record]]) -> list[Record]:
    """The records of the first round, each with the timing of all: what that round verified, or could not time, is what
    there is."""
    by_thing = [{thing(record): record.timing for record in each} for each in rounds]

    def pooled(record: Record) -> Record:
        timings = [found for each in by_thing if (found := each.get(thing(record)))]
        return replace(record, timing=timing_of(timings)) if record.timing else record

    return [pooled(record) for record in rounds[0]]


def timing_of(timings: Sequence[Timing]) -> Timing:
    """The medians of the rounds' figures: one round that something disturbed does not move them."""
    if len(timings) == 1:
        return timings[0]
    median, p20, p80, own = (
        statistics.median(getattr(each, name) for each in timings)
        for name in ("median_ms", "p20_ms", "p80_ms", "noise_pct")
    )
    between = summary([each.median_ms for each in timings]).noise_pct
    return Timing(median, p20, p80, sum(each.runs for each in timings), max(own, between))
