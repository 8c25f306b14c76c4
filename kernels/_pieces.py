"""Where a piece of a sequence lies, and from which of its chunks it is scanned."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def piece_start(starts, i_n, i_p, i_h, pieces, HV):
    """The chunk from which piece i_p is scanned; -1 where it needs the state that enters it: without starts all but
    the first."""
    found = gl.where(i_p == 0, 0, -1)
    if starts is not None:
        found = gl.load(starts + (i_n.to(gl.int64) * pieces + i_p) * HV + i_h)
    return found


@gluon.jit
def piece_chunks(starts, i_n, i_p, i_h, pieces, HV, NT):
    """Of piece i_p: (its start as piece_start has it, the first chunk scanned, its own first one, its end)."""
    start = piece_start(starts, i_n, i_p, i_h, pieces, HV)
    begin = i_p * NT // pieces
    return start, gl.where(start < 0, begin, start), begin, (i_p + 1) * NT // pieces
