"""The recurrences token by token: a tile of the state is read once, stays in registers, and is written once."""

import triton
import triton.language as tl

from ._exp import exp_exact


@triton.jit
def token_rows(i_n, cu_seqlens, T):
    """(sequence i_n's first row as int64, its length)."""
    if cu_seqlens is None:
        bos = i_n.to(tl.int64) * T
        length = T
    else:
        bos = tl.load(cu_seqlens + i_n).to(tl.int64)
        length = (tl.load(cu_seqlens + i_n + 1).to(tl.int64) - bos).to(tl.int32)
    return bos, length


@triton.jit
def state_slot(i_n, state_indices, slots):
    """(row of the states that sequence i_n owns as int64, whether there is such a row)."""
    i_s = i_n.to(tl.int64)
    if state_indices is not None:
        i_s = tl.load(state_indices + i_n).to(tl.int64)
    return i_s, (i_s >= 0) & (i_s < slots)


@triton.jit
def load_tile(state, p_s, o_k, o_v, m_s, V: tl.constexpr):
    """Rows o_k, columns o_v of the state at offset p_s in float32; zeros where there is none."""
    b_s = tl.zeros([o_k.shape[0], o_v.shape[0]], tl.float32)
    if state is not None:
        b_s = tl.load(state + p_s + o_k[:, None] * V + o_v[None, :], mask=m_s, other=0.0).to(tl.float32)
    return b_s


@triton.jit(do_not_specialize=["scale", "T", "slots", "H", "HV"])
def fused_recurrent_kernel(
    q, k, v, g, g_gamma, beta, state, state_indices, o, end_state, cu_seqlens, scale, T, slots, H, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PER_CHANNEL: tl.constexpr,
):  # fmt: skip
    """BV columns of one sequence's and head's state through its tokens.

        S <- exp(g) S        v' = beta (v - k S), or v without beta        S <- S + k^T v'        o = scale q S

    g: [B, T, HV], or with PER_CHANNEL [B, T, HV, K]. A sequence without a row among the states gives o = 0.
    """
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    o_k = tl.arange(0, BK)
    m_k, m_v = o_k < K, o_v < V
    bos, length = token_rows(i_n, cu_seqlens, T)
    i_s, m_live = state_slot(i_n, state_indices, slots)
    p_s = (i_s * HV + i_h) * (K * V)
    m_s = m_live & m_k[:, None] & m_v[None, :]
    b_s = load_tile(state, p_s, o_k, o_v, m_s, V)
    b_slope = 1.0
    if g_gamma is not None:
        b_slope = exp_exact(tl.load(g_gamma + i_h))

    for i_t in range(length):
        row = bos + i_t
        row_v = row * HV + i_h
        b_q = tl.load(q + (row * H + i_h // (HV // H)) * K + o_k, mask=m_live & m_k, other=0.0).to(tl.float32)
        b_k = tl.load(k + (row * H + i_h // (HV // H)) * K + o_k, mask=m_live & m_k, other=0.0).to(tl.float32)
        b_v = tl.load(v + row_v * V + o_v, mask=m_live & m_v, other=0.0).to(tl.float32)
        if g_gamma is not None:
            b_s *= b_slope
        if g is not None:
            if PER_CHANNEL:
                b_s *= exp_exact(tl.load(g + row_v * K + o_k, mask=m_live & m_k, other=0.0))[:, None]
            else:
                b_s *= exp_exact(tl.load(g + row_v, mask=m_live, other=0.0))
        if beta is not None:
            b_beta = tl.load(beta + row_v, mask=m_live, other=0.0).to(tl.float32)
            b_v = b_beta * (b_v - tl.sum(b_s * b_k[:, None], axis=0))
        b_s += b_k[:, None] * b_v[None, :]
        b_o = scale * tl.sum(b_s * b_q[:, None], axis=0)
        if o is not None:
            tl.store(o + row_v * V + o_v, b_o.to(o.dtype.element_ty), mask=m_v)

    if end_state is not None:
        tl.store(end_state + p_s + o_k[:, None] * V + o_v[None, :], b_s, mask=m_s)
