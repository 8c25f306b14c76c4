"""Rows times the softplus of a number each, and the gradient of that."""

import triton
import triton.language as tl

from ._exp import exp_exact
from ._softplus import softplus


@triton.jit(do_not_specialize=["rows", "HV"])
def discretize_kernel(
    x, dt, dt_bias, v, rows, HV, V: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr
):  # fmt: skip
    """v = softplus(dt + dt_bias) x for BR rows of V numbers; row r belongs to head r % HV."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    m_r = o_r < rows
    b_z = tl.load(dt + o_r, mask=m_r, other=0.0).to(tl.float32) + tl.load(dt_bias + o_r % HV, mask=m_r, other=0.0)
    b_d = softplus(b_z)[:, None]
    for i_v in tl.static_range(0, V, BV):
        o_v = i_v + tl.arange(0, BV)
        m = m_r[:, None] & (o_v < V)[None, :]
        p = o_r[:, None] * V + o_v[None, :]
        tl.store(v + p, b_d * tl.load(x + p, mask=m, other=0.0).to(tl.float32), mask=m)


@triton.jit(do_not_specialize=["rows", "HV"])
def discretize_vjp_kernel(
    d_v, x, dt, dt_bias, d_x, d_dt, rows, HV, V: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr
):  # fmt: skip
    """With z = dt + dt_bias, for BR rows of V numbers: d_x = softplus(z) d_v, d_dt = sigmoid(z) sum of d_v x."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    m_r = o_r < rows
    b_z = tl.load(dt + o_r, mask=m_r, other=0.0).to(tl.float32) + tl.load(dt_bias + o_r % HV, mask=m_r, other=0.0)
    b_d = softplus(b_z)[:, None]
    b_dot = tl.zeros([BR], tl.float32)
    for i_v in tl.static_range(0, V, BV):
        o_v = i_v + tl.arange(0, BV)
        m = m_r[:, None] & (o_v < V)[None, :]
        p = o_r[:, None] * V + o_v[None, :]
        b_dv = tl.load(d_v + p, mask=m, other=0.0).to(tl.float32)
        if d_x is not None:
            tl.store(d_x + p, b_d * b_dv, mask=m)
        if d_dt is not None:
            b_dot += tl.sum(b_dv * tl.load(x + p, mask=m, other=0.0).to(tl.float32), axis=1)
    if d_dt is not None:
        b_e = exp_exact(-tl.abs(b_z))
        tl.store(d_dt + o_r, b_dot * tl.div_rn(tl.where(b_z >= 0, 1.0, b_e), 1.0 + b_e), mask=m_r)
