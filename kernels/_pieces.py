"""Where a piece of a sequence lies, and from which of its chunks it is scanned."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def piece_start(starts, i_n, i_p, i_h, pieces, HV, NT, REVERSE: gl.constexpr = False):
    """The chunk from which piece i_p is scanned, in REVERSE the one after it; -1 where it needs the state that enters
    it: without starts all but the piece at the sequence's edge."""
    found = gl.where(i_p == 0, 0, -1)
    if REVERSE:
        found = gl.where(i_p == pieces - 1, NT, -1)
    if starts is not None:
        found = gl.load(starts + (i_n.to(gl.int64) * pieces + i_p) * HV + i_h)
    return found


@gluon.jit
def piece_chunks(start, i_p, pieces, NT, REVERSE: gl.constexpr = False):
    """Of piece i_p with that start: (the first chunk scanned, the end, how many of these come before its own)."""
    begin = i_p * NT // pieces
    end = (i_p + 1) * NT // pieces
    if REVERSE:
        scanned = gl.where(start < 0, end, start)
        return begin, scanned, scanned - end
    scanned = gl.where(start < 0, begin, start)
    return scanned, end, begin - scanned
