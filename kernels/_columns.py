"""Tiles whose rows are all there, and whose columns may not be."""

import triton
import triton.language as tl


@triton.jit
def load_columns(p, o, m, WHOLE: tl.constexpr):
    """A tile whose columns m are there; WHOLE: all of them are."""
    if WHOLE:
        b = tl.load(p + o)
    else:
        b = tl.load(p + o, mask=m, other=0.0)
    return b
