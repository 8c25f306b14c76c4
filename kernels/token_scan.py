"""Tokens one after the other through a state that stays in registers: decay per channel, write, read."""

import triton
import triton.language as tl

from ._chunks import sequence_span
from ._exp import exp_exact
from ._state import load_tile, store_tile


@triton.jit(do_not_specialize=["scale", "T", "H", "HV"])
def token_scan_kernel(
    q, k, v, g, initial_state, o, final_state, cu_seqlens, scale, T, H, HV,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    """S <- diag(d) S + k v, o = scale q S, with d = exp(g) where LOG, else g itself.

    One program owns BV value columns of one sequence's head.
    """
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    o_k = tl.arange(0, BK)
    m_v, m_k = o_v < V, o_k < K
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    bos, length = sequence_span(i_n, cu_seqlens, T)
    p_s = (i_n * HV + i_h) * (K * V)
    b_s = load_tile(initial_state, p_s, o_k, o_v, K, V)

    for t in range(length):
        row = bos + t
        p_k = (row * H + i_h // (HV // H)) * K + o_k
        p_v = (row * HV + i_h) * V + o_v
        b_q = tl.load(q + p_k, mask=m_k, other=0.0).to(tl.float32)
        b_k = tl.load(k + p_k, mask=m_k, other=0.0).to(tl.float32)
        b_v = tl.load(v + p_v, mask=m_v, other=0.0).to(tl.float32)
        b_d = tl.load(g + (row * HV + i_h) * K + o_k, mask=m_k, other=0.0)
        if LOG:
            b_d = exp_exact(b_d)
        b_s = b_d[:, None] * b_s + b_k[:, None] * b_v[None, :]
        if o is not None:
            b_o = scale * tl.sum(b_q[:, None] * b_s, axis=0)
            tl.store(o + p_v, b_o.to(o.dtype.element_ty), mask=m_v)

    if final_state is not None:
        store_tile(final_state, p_s, b_s, o_k, o_v, K, V)
