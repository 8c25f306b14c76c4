"""A scan that one program begins and another ends: what is left over a card's whole rounds, spread evenly over it."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ._barrier import barrier


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


@gluon.jit
def take_over(turns, place, begin, end):
    """Wait until the state of a part that does not begin its scan is there. Its program came earlier."""
    if (begin > 0) & (begin < end):
        while gl.atomic_cas(turns + place, 1, 1, sem="acquire") < 1:
            pass


@gluon.jit
def hand_over(turns, place, hands):
    """Say that it is, once all threads have stored theirs."""
    barrier()
    if hands:
        gl.atomic_xchg(turns + place, 1, sem="release")
