"""Rows plus weighted rows, and the gradient of that."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "HV"])
def skip_kernel(y, x, weight, o, rows, HV, V: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr):
    """o = y + weight x for BR rows of V numbers; row r belongs to head r % HV."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    m_r = o_r < rows
    b_w = tl.load(weight + o_r % HV, mask=m_r, other=0.0)[:, None]
    for i_v in tl.static_range(0, V, BV):
        o_v = i_v + tl.arange(0, BV)
        m = m_r[:, None] & (o_v < V)[None, :]
        p = o_r[:, None] * V + o_v[None, :]
        b_x = tl.load(x + p, mask=m, other=0.0).to(tl.float32)
        tl.store(o + p, tl.load(y + p, mask=m, other=0.0).to(tl.float32) + b_w * b_x, mask=m)


@triton.jit(do_not_specialize=["rows", "HV"])
def skip_vjp_kernel(
    d_o, x, weight, d_y, d_x, terms, rows, HV, V: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr
):  # fmt: skip
    """For BR rows of V numbers: d_y = d_o, d_x = weight d_o, and terms, each row's share of d_weight."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    m_r = o_r < rows
    b_w = tl.load(weight + o_r % HV, mask=m_r, other=0.0)[:, None]
    b_dot = tl.zeros([BR], tl.float32)
    for i_v in tl.static_range(0, V, BV):
        o_v = i_v + tl.arange(0, BV)
        m = m_r[:, None] & (o_v < V)[None, :]
        p = o_r[:, None] * V + o_v[None, :]
        b_do = tl.load(d_o + p, mask=m, other=0.0).to(tl.float32)
        if d_y is not None:
            tl.store(d_y + p, b_do, mask=m)
        if d_x is not None:
            tl.store(d_x + p, b_w * b_do, mask=m)
        if terms is not None:
            b_dot += tl.sum(b_do * tl.load(x + p, mask=m, other=0.0).to(tl.float32), axis=1)
    if terms is not None:
        tl.store(terms + o_r, b_dot, mask=m_r)
