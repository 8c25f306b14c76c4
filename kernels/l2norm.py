"""Rows divided by their softened L2 norm, and the gradient of that."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["eps", "rows"])
def l2norm_kernel(x, y, eps, rows, K: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr):
    """y = x / sqrt(sum x^2 + eps) for BR rows of K numbers."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    o_k = tl.arange(0, BK)
    m = (o_r < rows)[:, None] & (o_k < K)[None, :]
    p = o_r[:, None] * K + o_k[None, :]
    b_x = tl.load(x + p, mask=m, other=0.0).to(tl.float32)
    b_r = tl.div_rn(1.0, tl.sqrt_rn(tl.sum(b_x * b_x, axis=1) + eps))
    tl.store(y + p, b_x * b_r[:, None], mask=m)


@triton.jit(do_not_specialize=["eps", "rows"])
def l2norm_vjp_kernel(d_y, x, d_x, eps, rows, K: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr):
    """d_x = r (d_y - y <y, d_y>) for BR rows of K numbers, r = 1 / sqrt(sum x^2 + eps), y = r x."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    o_k = tl.arange(0, BK)
    m = (o_r < rows)[:, None] & (o_k < K)[None, :]
    p = o_r[:, None] * K + o_k[None, :]
    b_x = tl.load(x + p, mask=m, other=0.0).to(tl.float32)
    b_dy = tl.load(d_y + p, mask=m, other=0.0).to(tl.float32)
    b_r = tl.div_rn(1.0, tl.sqrt_rn(tl.sum(b_x * b_x, axis=1) + eps))[:, None]
    b_y = b_x * b_r
    b_dot = tl.sum(b_y * b_dy, axis=1)[:, None]
    tl.store(d_x + p, b_r * (b_dy - b_y * b_dot), mask=m)
