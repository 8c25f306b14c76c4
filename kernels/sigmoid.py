"""The logistic function and its gradient, number by number."""

import triton
import triton.language as tl

from ._exp import exp_exact


@triton.jit(do_not_specialize=["n"])
def sigmoid_kernel(x, y, n, BN: tl.constexpr):
    """y = 1 / (1 + exp(-x)) for BN numbers."""
    o = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    m = o < n
    b_x = tl.load(x + o, mask=m, other=0.0).to(tl.float32)
    # exp(-|x|) never overflows
    b_e = exp_exact(-tl.abs(b_x))
    tl.store(y + o, tl.div_rn(tl.where(b_x >= 0, 1.0, b_e), 1.0 + b_e), mask=m)


@triton.jit(do_not_specialize=["n"])
def sigmoid_vjp_kernel(d_y, x, d_x, n, BN: tl.constexpr):
    """d_x = d_y sigmoid(x) sigmoid(-x) for BN numbers."""
    o = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    m = o < n
    b_e = exp_exact(-tl.abs(tl.load(x + o, mask=m, other=0.0).to(tl.float32)))
    b_dy = tl.load(d_y + o, mask=m, other=0.0).to(tl.float32)
    tl.store(d_x + o, b_dy * tl.div_rn(b_e, (1.0 + b_e) * (1.0 + b_e)), mask=m)
