"""The softmax of rows, and its gradient."""

import triton
import triton.language as tl

from ._exp import exp_exact


@triton.jit
def row_softmax(x, o_r, rows, K: tl.constexpr, BK: tl.constexpr):
    """(softmax of the rows o_r [BR] of K numbers, their places, the mask)."""
    o_k = tl.arange(0, BK)
    m = (o_r < rows)[:, None] & (o_k < K)[None, :]
    p = o_r[:, None] * K + o_k[None, :]
    b_x = tl.load(x + p, mask=m, other=0.0).to(tl.float32)
    b_top = tl.max(tl.where(m, b_x, float("-inf")), axis=1)[:, None]
    b_e = tl.where(m, exp_exact(tl.where(m, b_x - b_top, 0.0)), 0.0)
    b_sum = tl.sum(b_e, axis=1)[:, None]
    return tl.div_rn(b_e, tl.where(b_sum > 0, b_sum, 1.0)), p, m


@triton.jit(do_not_specialize=["rows"])
def softmax_k_kernel(x, y, rows, K: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr):
    """y = exp(x - max) / sum exp(x - max) for BR rows of K numbers."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    b_y, p, m = row_softmax(x, o_r, rows, K, BK)
    tl.store(y + p, b_y, mask=m)


@triton.jit(do_not_specialize=["rows"])
def softmax_k_vjp_kernel(d_y, x, d_x, rows, K: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr):
    """d_x = y (d_y - <y, d_y>) for BR rows of K numbers."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    b_y, p, m = row_softmax(x, o_r, rows, K, BK)
    b_dy = tl.load(d_y + p, mask=m, other=0.0).to(tl.float32)
    tl.store(d_x + p, b_y * (b_dy - tl.sum(b_y * b_dy, axis=1)[:, None]), mask=m)
