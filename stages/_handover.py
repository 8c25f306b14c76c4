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
from ._pieces import SLICE, at_once, whole

LARGEST_TEAM, FEWEST_CHUNKS = 8, 4
"""Programs in a team, and chunks between two that hand over: what a state's way through memory is hidden behind."""

HANDED = {
    "turns": Port("PLACES 2", INT, doc="a word of 64 bits: whether each state that is handed over is there"),
    "handed": Port("PLACES K V", F32, doc="these states"),
}


def spread(heads, slices, chunks):
    """(scans that go ahead whole, teams, programs of each) of so many heads' scans, one for each slice of V, where an
    even spread is shorter than rounds; else None."""
    room = at_once(slices)
    ahead = room * max(heads // max(1, room) - 1, 0)
    rest = heads - ahead
    for size in range(min(LARGEST_TEAM, chunks // FEWEST_CHUNKS), 1, -1):
        teams = ceil_div(rest, size + 1)
        if room < rest and teams * size <= room:
            return ahead * slices, teams * slices, size
    return None


def spread_at(axes):
    return spread(axes["N"] * axes["HV"], ceil_div(axes["V"], SLICE), ceil_div(axes["T"], axes["C"]))


def handed_over(configs):
    """The same configurations, with how many states are handed over: room for one where none is, so that the kernel is
    the same."""
    return partial(place_configs, configs)


def place_configs(configs, axes, device):
    _, teams, size = spread_at(axes) or (0, 1, 2)
    return [{**config, "PLACES": teams * (size - 1)} for config in configs(axes, device)]


def over_parts(launches, turns, handed, k, seqs):
    """A scan of whole sequences by a kernel for Hopper: in parts, or all of it ahead. Packed sequences differ in
    length: they stay whole, as float32 and the plain kernels do."""
    if whole(k, seqs) or "turns" not in launches[0].args:
        return launches
    [scan] = launches
    scans, slices = scan.grid[0], scan.constexprs["V"] // SLICE
    found = spread(seqs.N * scan.args["HV"], slices, seqs.NT)
    ahead, teams, size = found or (scans, 1, 2)
    args = {**scan.args, "turns": turns, "entered": handed}
    args |= {"ahead": ahead, "teams": teams, "size": size, "scans": scans}
    return [replace(scan, grid=(ahead + 2 * teams * size if found else scans,), args=args)]


NO_PARTS = {"turns": None, "ahead": 0, "teams": 0, "size": 0, "scans": 0}
"""Arguments of a scan that is not handed over."""
