"""The scan over chunk states, with the delta rule's correction or without it."""

import triton
import triton.language as tl

from ._chunks import after_forgotten, sequence_rows
from ._decay import chunk_decay, to_chunk_end


@triton.jit
def load_state(state, p_s, o_v, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    """The state [K, V] at offset p_s, columns o_v, as transposed tiles [BV, BK]; zeros in float32 where it is None."""
    b_s = ()
    for j in tl.static_range((K + BK - 1) // BK):
        o_k = j * BK + tl.arange(0, BK)
        if state is not None:
            m_j = (o_v < V)[:, None] & (o_k < K)[None, :]
            b_j = tl.load(state + p_s + o_v[:, None] + o_k[None, :] * V, mask=m_j, other=0.0)
        else:
            b_j = tl.zeros([BV, BK], dtype=tl.float32)
        b_s = b_s + (b_j,)
    return b_s


@triton.jit
def store_state(state, p_s, b_s, o_v, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr):
    for j in tl.static_range((K + BK - 1) // BK):
        o_k = j * BK + tl.arange(0, BK)
        m_j = (o_v < V)[:, None] & (o_k < K)[None, :]
        tl.store(state + p_s + o_v[:, None] + o_k[None, :] * V, b_s[j].to(state.dtype.element_ty), mask=m_j)


@triton.jit
def channel_decay(b_end, i_chunk, o_k, K: tl.constexpr):
    """2^b_end of the channels o_k, in the row of b_end of that number."""
    return tl.exp2(tl.load(b_end + i_chunk * K + o_k, mask=o_k < K, other=0.0))


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def chunk_delta_h_kernel(
    k, w, v, g, g_gamma, b_end, initial_state, h, v_new, final_state, forgotten, cu_seqlens, chunk_offsets,
    T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """h = the state entering each chunk, v_new = v - w h (v itself without w), S <- 2^g_C S + (ga k)^T v_new.

    The first ``forgotten`` chunks of a head, if any, and the state before them do not count, and are not scanned.
    With b_end [NT, HV, K], log2 decays of whole chunks, row d of S decays by 2^b_end_d instead; k is taken as it is.
    One program owns BV value columns of one sequence's head. The state is held transposed, in tiles [BV, BK], so
    that the left operand of every product comes from registers and the right one straight from memory.
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
    o_first = o_v
    if forgotten is not None:
        skipped = tl.load(forgotten + i_n * HV + i_h)
        bos, length, slot = after_forgotten(skipped, bos, length, slot, C)
        o_first = tl.where(skipped > 0, V, o_v)
    b_s = load_state(initial_state, p_n, o_first, K, V, BK, BV)

    for i_t in range(tl.cdiv(length, C)):
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        p_k = k + ((bos + o_t) * H + i_h // (HV // H)) * K
        p_w = ((bos + o_t) * HV + i_h) * K
        p_v = ((bos + o_t) * HV + i_h) * V
        o_vc = o_v[:, None] + o_c[None, :] * (HV * V)
        m_vc = (o_v < V)[:, None] & (o_c < n)[None, :]
        b_v = tl.load(v + p_v + o_vc, mask=m_vc, other=0.0).to(tl.float32)
        if h is not None:
            store_state(h, ((slot + i_t) * HV + i_h) * (K * V), b_s, o_v, K, V, BK)
        if w is not None:
            b_held = tl.zeros([BV, C], dtype=tl.float32)
            for j in tl.static_range(NK):
                o_k = j * BK + tl.arange(0, BK)
                m_kc = (o_k < K)[:, None] & (o_c < n)[None, :]
                b_wt = tl.load(w + p_w + o_k[:, None] + o_c[None, :] * (HV * K), mask=m_kc, other=0.0)
                b_held = tl.dot(b_s[j].to(b_wt.dtype), b_wt, b_held, input_precision=PRECISION)
            b_v -= b_held
        if v_new is not None:
            tl.store(v_new + p_v + o_vc, b_v.to(v_new.dtype.element_ty), mask=m_vc)
        b_decay = 1.0
        if (g is not None) or (g_gamma is not None):
            b_g, b_gl = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
            b_v *= to_chunk_end(b_g, b_gl, n, C)[None, :]
            b_decay = tl.exp2(b_gl)
        b_next = ()
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            m_ck = (o_c < n)[:, None] & (o_k < K)[None, :]
            b_k = tl.load(p_k + o_c[:, None] * (H * K) + o_k[None, :], mask=m_ck, other=0.0)
            if b_end is not None:
                b_decay = channel_decay(b_end, (slot + i_t) * HV + i_h, o_k, K)[None, :]
            b_next = b_next + (tl.dot(b_v.to(b_k.dtype), b_k, b_s[j] * b_decay, input_precision=PRECISION),)
        b_s = b_next

    if final_state is not None:
        store_state(final_state, p_n, b_s, o_v, K, V, BK)
