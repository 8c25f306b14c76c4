"""Scans that are a few more than a card takes at once: what is left over its whole rounds is spread evenly over it.

A scan is one program's: one sequence, head and slice of V. 192 of them on 132 multiprocessors take two rounds, in the
second of which half of the card is idle. So one program begins a scan, leaves its state, and ends as another's second
part goes on from it (McNaughton's wrap-around rule): of size + 1 scans of NT chunks on size programs, scan j is handed
over with chunk (size - j) NT / size, and each program does NT (1 + 1 / size) in two parts. A second part waits for a
first one, whose program has a lower number: it relies on these to start before it does. That its state is there a word
of 64 bits says, which the second part takes back: the words lie in memory that nobody clears, where whatever else was
there before is that very number once in 2^64. A state is handed over in float32 as it is: no bit depends on whether
and where, so this may follow from the batch.
"""

from dataclasses import replace
from functools import partial

from ._contract import F32, INT, Port, ceil_div
from ._hopper import hopper_takes
from ._piece_starts import goes_in_pieces
from ._pieces import PROGRAMS, SLICE, whole
from ._tiles import state_limits

LARGEST_TEAM, FEWEST_CHUNKS = 8, 4
"""Programs in a team, and chunks between two that hand over: what a state's way through memory is hidden behind."""

HANDED = {
    "turns": Port("PLACES 2", INT, doc="a word of 64 bits: whether each state that is handed over is there"),
    "handed": Port("PLACES K V", F32, doc="these states"),
}


def spread(heads, slices, chunks):
    """(scans that go ahead whole, teams, programs of each) of so many heads' scans, one for each slice of V, where an
    even spread is shorter than rounds; else None."""
    at_once = PROGRAMS // slices
    ahead = at_once * max(heads // at_once - 1, 0)
    rest = heads - ahead
    for size in range(min(LARGEST_TEAM, chunks // FEWEST_CHUNKS), 1, -1):
        teams = ceil_div(rest, size + 1)
        if at_once < rest and teams * size <= at_once:
            return ahead * slices, teams * slices, size
    return None


def spread_at(axes):
    return spread(axes["N"] * axes["HV"], ceil_div(axes["V"], SLICE), ceil_div(axes["T"], axes["C"]))


def is_spread(axes, device):
    """Whether a scan is handed over at these sizes, where there is a kernel for it."""
    taken = hopper_takes(axes, device) and not state_limits(axes, device) and not goes_in_pieces(axes, device)
    return taken and spread_at(axes) is not None


def unless_spread(limits):
    """Those of a scan whose programs do all of it."""
    return partial(whole_limits, limits)


def where_spread(limits):
    """Those of the scan that is handed over."""
    return partial(spread_limits, limits)


def rounds(axes):
    return f"N = {axes['N']}, HV = {axes['HV']}, V = {axes['V']}"


def whole_limits(limits, axes, device):
    return f"{rounds(axes)}: the scans are spread evenly" if is_spread(axes, device) else limits(axes, device)


def spread_limits(limits, axes, device):
    return None if is_spread(axes, device) else limits(axes, device) or f"{rounds(axes)}: the scans fill whole rounds"


def in_parts(configs, **kernel):
    """The configurations of the kernel that hands over, with how many states it does."""
    return partial(part_configs, configs, kernel)


def part_configs(configs, kernel, axes, device):
    _, teams, size = spread_at(axes)
    taken = [each for each in configs(axes, device) if kernel.items() <= each.items()]
    return [{**each, "PLACES": teams * (size - 1)} for each in taken]


def over_parts(launches, turns, handed, k, seqs):
    """The launch for Hopper of a scan of whole sequences, in parts. Packed ones differ in length: they stay whole, as
    float32 does."""
    if whole(k, seqs):
        return launches
    [scan] = launches
    scans, slices = scan.grid[0], scan.constexprs["V"] // SLICE
    ahead, teams, size = spread(scans // slices, slices, seqs.NT)
    args = {**scan.args, "turns": turns, "entered": handed}
    args |= {"ahead": ahead, "teams": teams, "size": size, "scans": scans}
    return [replace(scan, grid=(ahead + 2 * teams * size,), args=args)]


NO_PARTS = {"turns": None, "ahead": 0, "teams": 0, "size": 0, "scans": 0}
"""Arguments of a scan that is not handed over."""
