"""One program leaves something in memory for another: how that one is told, and which scans are handed over so."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ._barrier import barrier

THERE = gl.constexpr(0x6A09E667F3BCC908)
"""What says so, in 64 bits that nothing else leaves in memory: nobody need clear them before."""


@gluon.jit
def take_over(turns, place):
    """Wait until what is handed over at this place is there, and take the word back. Who hands over came earlier."""
    p = turns.to(gl.pointer_type(gl.int64), bitcast=True) + place
    there = gl.to_tensor(THERE).to(gl.int64)
    while gl.atomic_cas(p, there, there * 0, sem="acquire") != there:
        pass


@gluon.jit
def hand_over(turns, place):
    """Say that it is, once all threads have stored theirs. Exactly one program takes it over."""
    barrier()
    p = turns.to(gl.pointer_type(gl.int64), bitcast=True) + place
    gl.atomic_xchg(p, gl.to_tensor(THERE).to(gl.int64), sem="release")


@gluon.jit
def scanned_part(pid, ahead, teams, size, scans, NT, NV: gl.constexpr):
    """(scan, first chunk, end, place of its state) of program pid, by stages/_handover.py: first those that go ahead
    whole, then a part for each of the ``size`` programs of each team, then a second one for each, in the order in which
    the first ones end. Scan j of a team is handed over with chunk (size - j) NT / size. NV teams have the NV scans of
    the same heads, which read the same keys, at the same time. A team that is not full has programs without a chunk.
    """
    late = gl.maximum(pid - ahead, 0)
    second = late >= teams * size
    late = gl.where(second, late - teams * size, late)
    i = gl.where(second, size - late // teams, late // teams)
    begin = gl.where(second, (size - i) * NT // size, 0)
    end = gl.where(second, NT, (size - i) * NT // size)
    team = late % teams
    scan = gl.where(pid < ahead, pid, ahead + (team // NV * (size + 1) + i) * NV + team % NV)
    end = gl.where(pid < ahead, NT, gl.where(scan < scans, end, begin))
    place = team * (size - 1) + gl.minimum(gl.maximum(i - 1, 0), size - 2)
    return gl.minimum(scan, scans - 1), begin, end, place
