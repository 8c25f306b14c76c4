"""Mamba-2 token by token, from the step before its softplus to the output with the skip."""

import triton
import triton.language as tl

from ._exp import exp_exact
from ._softplus import softplus
from .decay_gate import log_decay
from .fused_recurrent import load_tile, state_slot, token_rows


@triton.jit(do_not_specialize=["T", "slots", "H", "HV"])
def fused_recurrent_mamba2_kernel(
    x, dt, A_log, b, c, d_skip, dt_bias, state, state_indices, o, end_state, cu_seqlens, T, slots, H, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """BV columns of one sequence's and head's state through its tokens.

    d = softplus(dt + dt_bias)        S <- exp(-d exp(A_log)) S + b^T (d x)        o = c S + d_skip x
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
    b_A = tl.load(A_log + i_h)
    b_bias = tl.load(dt_bias + i_h)
    b_skip = tl.load(d_skip + i_h)

    for i_t in range(length):
        row = bos + i_t
        row_v = row * HV + i_h
        b_c = tl.load(c + (row * H + i_h // (HV // H)) * K + o_k, mask=m_live & m_k, other=0.0).to(tl.float32)
        b_b = tl.load(b + (row * H + i_h // (HV // H)) * K + o_k, mask=m_live & m_k, other=0.0).to(tl.float32)
        b_x = tl.load(x + row_v * V + o_v, mask=m_live & m_v, other=0.0).to(tl.float32)
        b_pre = tl.load(dt + row_v, mask=m_live, other=0.0).to(tl.float32) + b_bias
        b_g, _ = log_decay(b_pre, b_A)
        b_s = b_s * exp_exact(b_g) + b_b[:, None] * (softplus(b_pre) * b_x)[None, :]
        b_o = tl.sum(b_s * b_c[:, None], axis=0) + b_skip * b_x
        if o is not None:
            tl.store(o + row_v * V + o_v, b_o.to(o.dtype.element_ty), mask=m_v)

    if end_state is not None:
        tl.store(end_state + p_s + o_k[:, None] * V + o_v[None, :], b_s, mask=m_s)
