"""The scan that emits its output: what each chunk writes, under the delta rule made on chip, is read at once."""

import triton
import triton.language as tl

from ._chunks import sequence_span
from ._decay import chunk_decay, pair_decay, to_chunk_end
from ._state import load_tile, store_tile


@triton.jit
def load_rows(x, o_r, stride, o_d, D: tl.constexpr, BD: tl.constexpr):
    """Rows o_r, all of them there and ``stride`` apart, at the columns o_d of D; zeros past D."""
    p_x = x + o_r[:, None] * stride + o_d[None, :]
    if D % BD == 0:
        b_x = tl.load(p_x)
    else:
        b_x = tl.load(p_x, mask=(o_d < D)[None, :], other=0.0)
    return b_x


@triton.jit(do_not_specialize=["scale", "T", "H", "HV"])
def chunk_delta_o_kernel(
    q, k, v, beta, Ai, g, g_gamma, initial_state, o, final_state, scale, cu_seqlens, T, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """v_new = Ai beta (v - 2^g k S), v itself without Ai; o = scale (2^g q S + (E * q k^T) v_new);
    S <- 2^g_C S + (ga k)^T v_new.

    One program owns BV value columns of one sequence's head, the state in tiles [BK, BV]. The scores q k^T come after
    v_new: beside the products with the state they do not fit the registers.
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
    b_s = ()
    for j in tl.static_range(NK):
        b_s = b_s + (load_tile(initial_state, p_n, j * BK + tl.arange(0, BK), o_v, K, V),)

    for i_t in range(tl.cdiv(length, C)):
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        # rows past the chunk's end repeat its last one, so that no load needs a mask of rows; what they give is never
        # stored, and enters the state with the factor 0
        o_r = tl.minimum(o_c, n - 1)
        row = (bos + o_t) * HV + i_h
        p_k = ((bos + o_t) * H + i_h // (HV // H)) * K
        b_u = load_rows(v + row * V, o_r, HV * V, o_v, V, BV)
        b_new = b_u.to(tl.float32)
        if (g is not None) or (g_gamma is not None):
            b_g, b_gl = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
            b_gam = tl.exp2(b_g)[:, None]

        b_held = tl.zeros([C, BV], dtype=tl.float32)
        b_o = tl.zeros([C, BV], dtype=tl.float32)
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            b_q = load_rows(q + p_k, o_r, H * K, o_k, K, BK)
            b_j = b_s[j].to(b_q.dtype)
            b_o = tl.dot(b_q, b_j, b_o, input_precision=PRECISION)
            if Ai is not None:
                b_k = load_rows(k + p_k, o_r, H * K, o_k, K, BK)
                b_held = tl.dot(b_k, b_j, b_held, input_precision=PRECISION)
        if (g is not None) or (g_gamma is not None):
            b_held *= b_gam
            b_o *= b_gam
        if Ai is not None:
            b_beta = tl.load(beta + row + o_r * HV).to(tl.float32)
            b_x = ((b_new - b_held) * b_beta[:, None]).to(b_u.dtype)
            b_Ai = load_rows(Ai + row * C, o_r, HV * C, o_c, C, C)
            b_Ai = tl.where(o_r[:, None] >= o_c[None, :], b_Ai, 0.0)
            b_new = tl.dot(b_Ai, b_x, input_precision=PRECISION)
            b_u = b_new.to(b_u.dtype)
        if (g is not None) or (g_gamma is not None):
            b_end = (b_new * to_chunk_end(b_g, b_gl, n, C)[:, None]).to(b_u.dtype)
        else:
            b_end = tl.where((o_c < n)[:, None], b_u, 0.0)

        b_a = tl.zeros([C, C], dtype=tl.float32)
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            b_k = load_rows(k + p_k, o_r, H * K, o_k, K, BK)
            b_q = load_rows(q + p_k, o_r, H * K, o_k, K, BK)
            b_a = tl.dot(b_q, tl.trans(b_k), b_a, input_precision=PRECISION)
        if (g is not None) or (g_gamma is not None):
            b_a *= pair_decay(b_g, b_g, o_c, o_c, n)
        else:
            b_a = tl.where(o_c[:, None] >= o_c[None, :], b_a, 0.0)
        b_o = tl.dot(b_a.to(b_u.dtype), b_u, b_o, input_precision=PRECISION) * scale

        b_next = ()
        for j in tl.static_range(NK):
            b_k = load_rows(k + p_k, o_r, H * K, j * BK + tl.arange(0, BK), K, BK)
            b_j = b_s[j]
            if (g is not None) or (g_gamma is not None):
                b_j *= tl.exp2(b_gl)
            b_next = b_next + (tl.dot(tl.trans(b_k), b_end, b_j, input_precision=PRECISION),)
        b_s = b_next

        m_cv = (o_c < n)[:, None] & (o_v < V)[None, :]
        tl.store(o + row * V + o_c[:, None] * (HV * V) + o_v[None, :], b_o.to(o.dtype.element_ty), mask=m_cv)

    if final_state is not None:
        for j in tl.static_range(NK):
            store_tile(final_state, p_n, b_s[j], j * BK + tl.arange(0, BK), o_v, K, V)
