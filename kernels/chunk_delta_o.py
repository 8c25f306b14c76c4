"""The scan that emits its output: what each chunk writes, under the delta rule made on chip, is read at once."""

import triton
import triton.language as tl

from ._chunks import sequence_span
from ._columns import load_columns
from ._decay import chunk_decay, pair_decay_transposed, to_chunk_end
from .chunk_delta_h import load_state, store_state


@triton.jit(do_not_specialize=["scale", "T", "H", "HV"])
def chunk_delta_o_kernel(
    q, k, v, beta, Ai, g, g_gamma, initial_state, o, final_state, scale, cu_seqlens, T, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """v_new = Ai beta (v - 2^g k S), v itself without Ai; o = scale (2^g q S + (E * q k^T) v_new);
    S <- 2^g_C S + (ga k)^T v_new.

    One program owns BV value columns of one sequence's head. All is held transposed, the state in tiles [BV, BK], so
    that the left operand of every product with the state or with v_new comes from registers.
    """
    NK: tl.constexpr = (K + BK - 1) // BK
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    bos, length = sequence_span(i_n, cu_seqlens, T)
    p_n = (i_n * HV + i_h) * (K * V)
    o_c = tl.arange(0, C)
    b_s = load_state(initial_state, p_n, o_v, K, V, BK, BV)

    for i_t in range(tl.cdiv(length, C)):
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        m_c = o_c < n
        # rows past the chunk's end repeat its last one, so that no load needs a mask of rows; what they give is never
        # stored, and enters the state with the factor 0
        o_r = tl.minimum(o_c, n - 1)
        p_k = k + ((bos + o_t) * H + i_h // (HV // H)) * K
        p_q = q + ((bos + o_t) * H + i_h // (HV // H)) * K
        row = (bos + o_t) * HV + i_h
        o_vc = o_v[:, None] + o_c[None, :] * (HV * V)
        m_vc = (o_v < V)[:, None] & m_c[None, :]
        b_g, b_gl = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
        b_a = tl.zeros([C, C], dtype=tl.float32)
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            b_qt = load_columns(p_q, o_k[:, None] + o_r[None, :] * (H * K), (o_k < K)[:, None], K % BK == 0)
            b_k = load_columns(p_k, o_r[:, None] * (H * K) + o_k[None, :], (o_k < K)[None, :], K % BK == 0)
            b_a = tl.dot(b_k, b_qt, b_a, input_precision=PRECISION)
        if (g is not None) or (g_gamma is not None):
            b_a *= pair_decay_transposed(b_g, b_g, o_c, o_c, n)
        else:
            b_a = tl.where(o_c[:, None] <= o_c[None, :], b_a, 0.0)
        b_p = b_a.to(k.dtype.element_ty)

        b_v = load_columns(v + row * V, o_v[:, None] + o_r[None, :] * (HV * V), (o_v < V)[:, None], V % BV == 0)
        b_new = b_v.to(tl.float32)
        if Ai is not None:
            b_held = tl.zeros([BV, C], dtype=tl.float32)
            for j in tl.static_range(NK):
                o_k = j * BK + tl.arange(0, BK)
                b_kt = load_columns(p_k, o_k[:, None] + o_r[None, :] * (H * K), (o_k < K)[:, None], K % BK == 0)
                b_held = tl.dot(b_s[j].to(b_kt.dtype), b_kt, b_held, input_precision=PRECISION)
            if (g is not None) or (g_gamma is not None):
                b_held *= tl.exp2(b_g)[None, :]
            b_beta = tl.load(beta + row + o_r * HV).to(tl.float32)
            b_x = ((b_new - b_held) * b_beta[None, :]).to(b_v.dtype)
            m_ji = m_c[None, :] & (o_c[:, None] <= o_c[None, :])
            b_Ait = tl.load(Ai + row * C + o_c[:, None] + o_c[None, :] * (HV * C), mask=m_ji, other=0.0)
            b_new = tl.dot(b_x, b_Ait, input_precision=PRECISION)
        b_u = b_new.to(b_v.dtype)
        if (g is not None) or (g_gamma is not None):
            b_end = (b_new * to_chunk_end(b_g, b_gl, n, C)[None, :]).to(b_v.dtype)
        else:
            b_end = tl.where(m_c[None, :], b_u, 0.0)

        b_o = tl.zeros([BV, C], dtype=tl.float32)
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            b_qt = load_columns(p_q, o_k[:, None] + o_r[None, :] * (H * K), (o_k < K)[:, None], K % BK == 0)
            b_o = tl.dot(b_s[j].to(b_qt.dtype), b_qt, b_o, input_precision=PRECISION)
        if (g is not None) or (g_gamma is not None):
            b_o *= tl.exp2(b_g)[None, :]
        b_o = tl.dot(b_u, b_p, b_o, input_precision=PRECISION) * scale
        tl.store(o + row * V + o_vc, b_o.to(o.dtype.element_ty), mask=m_vc)

        b_next = ()
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            b_k = load_columns(p_k, o_r[:, None] * (H * K) + o_k[None, :], (o_k < K)[None, :], K % BK == 0)
            b_j = b_s[j]
            if (g is not None) or (g_gamma is not None):
                b_j *= tl.exp2(b_gl)
            b_next = b_next + (tl.dot(b_end, b_k, b_j, input_precision=PRECISION),)
        b_s = b_next

    if final_state is not None:
        store_state(final_state, p_n, b_s, o_v, K, V, BK)
