"""Is it faster? Two timings and what their noise allows one to say.

    same      the medians differ by SAME_PCT at most, noise and all: no machine is steadier than that
    slower    most runs of the second take longer than most of the first (its 20th percentile is above the other's
              80th), and the medians are further apart than the noise of both
    faster    the same the other way round
    unclear   none of these: measure longer, or on a quieter machine; always where one has fewer than FEW runs, of which
              nothing can be said with 95 % confidence
"""

import math
from dataclasses import dataclass

from ..reporting.clocks import Timing

FASTER, SLOWER, SAME, UNCLEAR = "faster", "slower", "same", "unclear"
SAME_PCT = 3.0
FEW = 6


@dataclass(frozen=True)
class Verdict:
    """word: one of the four. change_pct: of the median, above 0 where the second takes longer. noise_pct: of both."""

    word: str
    change_pct: float
    noise_pct: float


def verdict(before: Timing, after: Timing) -> Verdict:
    """The noises are half widths of 95 % intervals of independent medians: they add up as squares."""
    if not before.median_ms:
        return Verdict(UNCLEAR, 0.0, 100.0)
    change = 100 * (after.median_ms / before.median_ms - 1)
    noise = math.hypot(before.noise_pct, after.noise_pct)
    return Verdict(word(before, after, change, noise), change, noise)


def word(before: Timing, after: Timing, change: float, noise: float) -> str:
    if min(before.runs, after.runs) < FEW:
        return UNCLEAR
    if abs(change) + noise <= SAME_PCT:
        return SAME
    if after.p20_ms > before.p80_ms and change > noise:
        return SLOWER
    if after.p80_ms < before.p20_ms and -change > noise:
        return FASTER
    return UNCLEAR
