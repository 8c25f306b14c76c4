"""Zeros in a buffer that programs count in."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n"])
def clear_kernel(x, n, BLOCK: tl.constexpr):
    """x [n] = 0."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + o, 0, mask=o < n)
