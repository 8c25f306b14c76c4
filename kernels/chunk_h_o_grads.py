"""The scan that emits its output, in either direction: the gradients of such a scan are scans of the same form."""

import triton
import triton.language as tl

from ._chunks import sequence_rows
from ._columns import load_columns
from ._decay import chunk_decay, pair_decay, pair_decay_transposed, to_chunk_end


@triton.jit
def tile_offsets(o_v, o_k, K: tl.constexpr, V: tl.constexpr, TURNED: tl.constexpr):
    """Of a state's columns o_v and rows o_k, which lie in memory as [K, V], turned as [V, K]."""
    return o_v[:, None] * K + o_k[None, :] if TURNED else o_v[:, None] + o_k[None, :] * V


@triton.jit
def load_states(x, p, o_v, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, TURNED: tl.constexpr):
    """The state at offset p as tiles [BV, BK]; zeros where x is None."""
    b_s = ()
    for j in tl.static_range((K + BK - 1) // BK):
        o_k = j * BK + tl.arange(0, BK)
        if x is not None:
            m_j = (o_v < V)[:, None] & (o_k < K)[None, :]
            b_j = tl.load(x + p + tile_offsets(o_v, o_k, K, V, TURNED), mask=m_j, other=0.0)
        else:
            b_j = tl.zeros([BV, BK], dtype=tl.float32)
        b_s = b_s + (b_j,)
    return b_s


@triton.jit
def store_states(x, p, b_s, o_v, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, TURNED: tl.constexpr):
    for j in tl.static_range((K + BK - 1) // BK):
        o_k = j * BK + tl.arange(0, BK)
        m_j = (o_v < V)[:, None] & (o_k < K)[None, :]
        tl.store(x + p + tile_offsets(o_v, o_k, K, V, TURNED), b_s[j].to(x.dtype.element_ty), mask=m_j)


@triton.jit(do_not_specialize=["scale", "T", "NT", "HK", "HZ", "HV"])
def chunk_h_o_grads_kernel(
    x, y, z, g, g_gamma, first, out, states, last, forgotten, scale, cu_seqlens, chunk_offsets, T, NT, HK, HZ, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    BACKWARD: tl.constexpr, TURNED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Queries x and keys y [rows, HK, K], values z [rows, HZ, V], out [rows, HV, V]. Forward
    out = scale (gam x S + (E * x y^T) z), S <- 2^g_C S + (ga y)^T z;
    backward out = ga x S + scale (E^T * x y^T) z, S <- 2^g_C S + scale (gam y)^T z, from the last chunk to the first.

    S goes from ``first``, zeros when None, to ``last``; states takes it before each chunk. Backward the last
    ``forgotten`` chunks of a head, if any, and the state after them do not count, and are not scanned. One program owns
    BV value columns of one sequence's head, the state held transposed in tiles [BV, BK].
    """
    NK: tl.constexpr = (K + BK - 1) // BK
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_n = pid // NV // HV
    bos, length, slot = sequence_rows(i_n, cu_seqlens, chunk_offsets, T, NT)
    p_n = (i_n * HV + i_h) * (K * V)
    o_c = tl.arange(0, C)
    n_t = tl.cdiv(length, C)
    o_first = o_v
    if forgotten is not None:
        skipped = tl.load(forgotten + i_n * HV + i_h)
        n_t -= skipped
        o_first = tl.where(skipped > 0, V, o_v)
    b_s = load_states(first, p_n, o_first, K, V, BK, BV, TURNED)
    for i in range(n_t):
        i_t = n_t - 1 - i if BACKWARD else i
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        m_c = o_c < n
        # rows past the chunk's end repeat its last one, so that no load needs a mask of rows; what they read is never
        # stored, and what is read of them has the factor 0
        o_r = tl.minimum(o_c, n - 1)
        p_k = ((bos + o_t) * HK + i_h // (HV // HK)) * K
        p_z = ((bos + o_t) * HZ + i_h // (HV // HZ)) * V
        b_g, b_gl = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
        b_gam, b_ga = tl.where(m_c, tl.exp2(b_g), 0.0) * scale, to_chunk_end(b_g, b_gl, n, C)
        if states is not None:
            store_states(states, ((slot + i_t) * HV + i_h) * (K * V), b_s, o_v, K, V, BK, TURNED)
        b_a = tl.zeros([C, C], dtype=tl.float32)
        b_o = tl.zeros([BV, C], dtype=tl.float32)
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            b_xt = load_columns(x + p_k, o_k[:, None] + o_r[None, :] * (HK * K), (o_k < K)[:, None], K % BK == 0)
            b_y = load_columns(y + p_k, o_r[:, None] * (HK * K) + o_k[None, :], (o_k < K)[None, :], K % BK == 0)
            b_a = tl.dot(b_y, b_xt, b_a, input_precision=PRECISION)
            b_o = tl.dot(b_s[j].to(b_xt.dtype), b_xt, b_o, input_precision=PRECISION)
        if BACKWARD:
            b_a *= pair_decay(b_g, b_g, o_c, o_c, n) * scale
            b_read, b_write = b_ga, b_gam
        else:
            b_a *= pair_decay_transposed(b_g, b_g, o_c, o_c, n) * scale
            b_read, b_write = b_gam, b_ga
        b_z = load_columns(z + p_z, o_v[:, None] + o_r[None, :] * (HZ * V), (o_v < V)[:, None], V % BV == 0)
        b_end = (b_z * b_write[None, :]).to(b_z.dtype)
        b_o = tl.dot(b_z, b_a.to(b_z.dtype), b_o * b_read[None, :], input_precision=PRECISION)
        if out is not None:
            o_vc = o_v[:, None] + o_c[None, :] * (HV * V)
            m_vc = (o_v < V)[:, None] & m_c[None, :]
            tl.store(out + ((bos + o_t) * HV + i_h) * V + o_vc, b_o.to(out.dtype.element_ty), mask=m_vc)
        b_next = ()
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            b_y = load_columns(y + p_k, o_r[:, None] * (HK * K) + o_k[None, :], (o_k < K)[None, :], K % BK == 0)
            b_next = b_next + (tl.dot(b_end, b_y, b_s[j] * tl.exp2(b_gl), input_precision=PRECISION),)
        b_s = b_next

    if last is not None:
        store_states(last, p_n, b_s, o_v, K, V, BK, TURNED)
