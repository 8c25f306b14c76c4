"""Attention over two sets of keys, from what it is over each."""

import triton
import triton.language as tl


@triton.jit
def shares(lse_a, lse_b, o_r, m_r):
    """(share of a, share of b, lse) of rows o_r: 0, 0 and -inf where neither sees anything."""
    LOG2E: tl.constexpr = 1.4426950408889634
    b_a = tl.load(lse_a + o_r, mask=m_r, other=float("-inf"))
    b_b = tl.load(lse_b + o_r, mask=m_r, other=float("-inf"))
    b_m = tl.maximum(b_a, b_b)
    b_base = tl.where(b_m == float("-inf"), 0.0, b_m)
    b_wa = tl.exp2((b_a - b_base) * LOG2E)
    b_wb = tl.exp2((b_b - b_base) * LOG2E)
    b_none = b_wa + b_wb == 0.0
    b_total = tl.where(b_none, 1.0, b_wa + b_wb)
    b_lse = tl.where(b_none, float("-inf"), b_base + tl.log2(b_total) / LOG2E)
    return b_wa / b_total, b_wb / b_total, b_lse


@triton.jit
def share(b_w, x, p, m):
    """The rows of x at p, weighted; 0 where the weight is, whatever they hold."""
    b_x = tl.load(x + p, mask=m & (b_w > 0)[:, None], other=0.0).to(tl.float32)
    return b_x * b_w[:, None]


@triton.jit(do_not_specialize=["rows"])
def merge_states_kernel(
    o_a, lse_a, o_b, lse_b, o, lse, rows, DV: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr
):  # fmt: skip
    """BR rows [B, Sq, HQ]."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    o_v = tl.arange(0, BV)
    m_r = o_r < rows
    p, m = o_r[:, None] * DV + o_v[None, :], m_r[:, None] & (o_v < DV)[None, :]
    b_wa, b_wb, b_lse = shares(lse_a, lse_b, o_r, m_r)
    if o is not None:
        b_o = share(b_wa, o_a, p, m) + share(b_wb, o_b, p, m)
        tl.store(o + p, b_o.to(o.dtype.element_ty), mask=m)
    if lse is not None:
        tl.store(lse + o_r, b_lse, mask=m_r)


@triton.jit
def store_gradients(b_w, b_do, b_dlse, b_o, x, d_x, d_lse, o_r, m_r, p, m):
    """d_x = w do, d_lse = w (<do, x - o> + dlse), of one of the two."""
    b_x = tl.load(x + p, mask=m & (b_w > 0)[:, None], other=0.0).to(tl.float32)
    if d_x is not None:
        tl.store(d_x + p, (b_w[:, None] * b_do).to(d_x.dtype.element_ty), mask=m)
    if d_lse is not None:
        b_d = b_w * (tl.sum(b_do * (b_x - b_o), axis=1) + b_dlse)
        tl.store(d_lse + o_r, tl.where(b_w > 0, b_d, 0.0), mask=m_r)


@triton.jit(do_not_specialize=["rows"])
def merge_states_vjp_kernel(
    d_o, d_lse, o_a, lse_a, o_b, lse_b, o, d_o_a, d_lse_a, d_o_b, d_lse_b, rows,
    DV: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    o_v = tl.arange(0, BV)
    m_r = o_r < rows
    p, m = o_r[:, None] * DV + o_v[None, :], m_r[:, None] & (o_v < DV)[None, :]
    b_wa, b_wb, _ = shares(lse_a, lse_b, o_r, m_r)
    b_do = tl.zeros([BR, BV], dtype=tl.float32)
    b_dlse = tl.zeros([BR], dtype=tl.float32)
    if d_o is not None:
        b_do += tl.load(d_o + p, mask=m, other=0.0)
    if d_lse is not None:
        b_dlse += tl.load(d_lse + o_r, mask=m_r, other=0.0)
    b_o = tl.load(o + p, mask=m, other=0.0).to(tl.float32)
    store_gradients(b_wa, b_do, b_dlse, b_o, o_a, d_o_a, d_lse_a, o_r, m_r, p, m)
    store_gradients(b_wb, b_do, b_dlse, b_o, o_b, d_o_b, d_lse_b, o_r, m_r, p, m)
