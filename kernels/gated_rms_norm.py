"""Rows over their root mean square, times a weight, times the silu of a gate; and the gradient of that."""

import triton
import triton.language as tl

from ._exp import exp_exact


@triton.jit
def sigmoid_pair(z):
    """(sigmoid(z), sigmoid(-z)), neither of them by a difference."""
    e = exp_exact(-tl.abs(z))
    near, far = tl.div_rn(1.0, 1.0 + e), tl.div_rn(e, 1.0 + e)
    return tl.where(z >= 0, near, far), tl.where(z >= 0, far, near)


@triton.jit(do_not_specialize=["eps", "rows"])
def gated_rms_norm_kernel(o, z, weight, y, eps, rows, V: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr):
    """y = o / sqrt(mean o^2 + eps) weight z sigmoid(z) for BR rows of V numbers."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    o_v = tl.arange(0, BV)
    m = (o_r < rows)[:, None] & (o_v < V)[None, :]
    p = o_r[:, None] * V + o_v[None, :]
    b_w = tl.load(weight + o_v, mask=o_v < V, other=0.0)[None, :]
    b_o = tl.load(o + p, mask=m, other=0.0).to(tl.float32)
    b_z = tl.load(z + p, mask=m, other=0.0).to(tl.float32)
    b_r = tl.div_rn(1.0, tl.sqrt_rn(tl.sum(b_o * b_o, axis=1) / V + eps))[:, None]
    b_on, _ = sigmoid_pair(b_z)
    tl.store(y + p, b_o * b_r * b_w * (b_z * b_on), mask=m)


@triton.jit(do_not_specialize=["eps", "N", "rows", "per_token"])
def gated_rms_norm_vjp_kernel(
    d_y, o, z, weight, d_o, d_z, parts, eps, cu_seqlens, N, rows, per_token,
    P: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """d_o, d_z of every P-th block of BR rows, and one program's share of d_weight: parts [P, V].

    A token has per_token rows; those past the last sequence are left out of d_weight, whatever they hold.
    """
    i_p = tl.program_id(0).to(tl.int64)
    o_v = tl.arange(0, BV)
    m_v = (o_v < V)[None, :]
    b_w = tl.load(weight + o_v, mask=o_v < V, other=0.0)[None, :]
    if cu_seqlens is None:
        end = rows.to(tl.int64)
    else:
        end = tl.load(cu_seqlens + N).to(tl.int64) * per_token
    b_dw = tl.zeros([BR, BV], tl.float32)
    for i_r in range(i_p * BR, end, P * BR):
        o_r = i_r + tl.arange(0, BR)
        m = (o_r < end)[:, None] & m_v
        p = o_r[:, None] * V + o_v[None, :]
        b_dy = tl.load(d_y + p, mask=m, other=0.0).to(tl.float32)
        b_o = tl.load(o + p, mask=m, other=0.0).to(tl.float32)
        b_z = tl.load(z + p, mask=m, other=0.0).to(tl.float32)
        b_r = tl.div_rn(1.0, tl.sqrt_rn(tl.sum(b_o * b_o, axis=1) / V + eps))[:, None]
        b_n = b_o * b_r
        b_on, b_off = sigmoid_pair(b_z)
        b_gate = b_z * b_on
        b_dw += b_dy * b_n * b_gate
        if d_z is not None:
            tl.store(d_z + p, b_dy * b_n * b_w * (b_on * (1.0 + b_z * b_off)), mask=m)
        if d_o is not None:
            b_dn = b_dy * b_w * b_gate
            b_dot = tl.sum(b_n * b_dn, axis=1)[:, None] / V
            tl.store(d_o + p, b_r * (b_dn - b_n * b_dot), mask=m)
    if parts is not None:
        tl.store(parts + i_p * V + o_v, tl.sum(b_dw, axis=0), mask=o_v < V)
