"""The scan over chunk states, with the delta rule's correction or without it."""

import triton
import triton.language as tl

from ._chunks import sequence_rows
from ._decay import chunk_decay, to_chunk_end


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def chunk_delta_h_kernel(
    k, w, v, g, g_gamma, initial_state, h, v_new, final_state, cu_seqlens, chunk_offsets, T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """h = the state entering each chunk, v_new = v - w h (v itself without w), S <- 2^g_C S + (ga k)^T v_new.

    One program owns BV value columns of one sequence's head. The state is held transposed, [BV, BK], so that both
    products take their left operand from registers: the serial path of a chunk touches no shared memory.
    """
    pid = tl.program_id(0).to(tl.int64)
    NV: tl.constexpr = (V + BV - 1) // BV
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    bos, length, slot = sequence_rows(i_n, cu_seqlens, chunk_offsets, T, NT)

    o_k = tl.arange(0, BK)
    o_c = tl.arange(0, C)
    m_k = o_k < K
    m_v = o_v < V
    m_s = m_v[:, None] & m_k[None, :]
    o_s = o_v[:, None] + o_k[None, :] * V
    b_s = tl.zeros([BV, BK], dtype=tl.float32)
    if initial_state is not None:
        b_s += tl.load(initial_state + (i_n * HV + i_h) * (K * V) + o_s, mask=m_s, other=0.0)

    for i_t in range(tl.cdiv(length, C)):
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        m_c = o_c < n
        row = bos + o_t
        b_k = tl.load(
            k + (row * H + i_h // (HV // H)) * K + o_c[:, None] * (H * K) + o_k[None, :],
            mask=m_c[:, None] & m_k[None, :], other=0.0,
        )  # fmt: skip
        m_vc = m_v[:, None] & m_c[None, :]
        o_vc = o_v[:, None] + o_c[None, :] * (HV * V)
        b_v = tl.load(v + (row * HV + i_h) * V + o_vc, mask=m_vc, other=0.0)
        if h is not None:
            p_h = h + ((slot + i_t) * HV + i_h) * (K * V)
            tl.store(p_h + o_s, b_s.to(h.dtype.element_ty), mask=m_s)
        if w is not None:
            b_wt = tl.load(
                w + (row * HV + i_h) * K + o_k[:, None] + o_c[None, :] * (HV * K),
                mask=m_k[:, None] & m_c[None, :], other=0.0,
            )  # fmt: skip
            b_new = b_v.to(tl.float32) - tl.dot(b_s.to(b_wt.dtype), b_wt, input_precision=PRECISION)
        else:
            b_new = b_v.to(tl.float32)
        if v_new is not None:
            tl.store(v_new + (row * HV + i_h) * V + o_vc, b_new.to(v_new.dtype.element_ty), mask=m_vc)
        if (g is not None) or (g_gamma is not None):
            b_g, b_gl = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
            b_new *= to_chunk_end(b_g, b_gl, n, C)[None, :]
            b_s *= tl.exp2(b_gl)
        b_s = tl.dot(b_new.to(b_k.dtype), b_k, b_s, input_precision=PRECISION)

    if final_state is not None:
        tl.store(final_state + (i_n * HV + i_h) * (K * V) + o_s, b_s, mask=m_s)
