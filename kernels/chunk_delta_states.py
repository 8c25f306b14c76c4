"""The delta rule's scan over chunk states from keys, values and the inverse: neither w nor u goes through memory."""

import triton
import triton.language as tl

from ._chunks import after_forgotten, sequence_rows
from ._columns import load_columns
from ._decay import chunk_decay, to_chunk_end
from .chunk_delta_h import load_state, store_state
from .segment_map import identity_columns


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def chunk_delta_states_kernel(
    k, v, beta, Ai, g, initial_state, h, v_new, final_state, forgotten, cu_seqlens, chunk_offsets, T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """h = the state entering each chunk, v_new = Ai beta (v - 2^g k S), S <- 2^g_C S + (ga k)^T v_new. Without v that
    is 0, and S starts from the identity, V being K. The first ``forgotten`` chunks of a head, if any, and the state
    before them do not count, and are not scanned.

    One program owns BV value columns of one sequence's head. All is held transposed, the state in tiles [BV, BK], so
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
    if v is not None:
        b_s = load_state(initial_state, p_n, o_first, K, V, BK, BV)
    else:
        b_s = identity_columns(o_first, K, BK)

    for i_t in range(tl.cdiv(length, C)):
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        m_c = o_c < n
        # rows past the chunk's end repeat its last one, so that no load needs a mask of rows: their factors are 0
        o_r = tl.minimum(o_c, n - 1)
        p_k = k + ((bos + o_t) * H + i_h // (HV // H)) * K
        row = (bos + o_t) * HV + i_h
        o_vc = o_v[:, None] + o_c[None, :] * (HV * V)
        m_vc = (o_v < V)[:, None] & m_c[None, :]
        if v is not None:
            o_vr = o_v[:, None] + o_r[None, :] * (HV * V)
            b_v = load_columns(v + row * V, o_vr, (o_v < V)[:, None], V % BV == 0).to(tl.float32)
        else:
            b_v = tl.zeros([BV, C], dtype=tl.float32)
        b_beta = tl.load(beta + row + o_c * HV, mask=m_c, other=0.0).to(tl.float32)
        b_g, b_gl = chunk_decay(g, None, i_h, bos, o_t, length, HV, C)
        if h is not None:
            store_state(h, ((slot + i_t) * HV + i_h) * (K * V), b_s, o_v, K, V, BK)
        b_held = tl.zeros([BV, C], dtype=tl.float32)
        b_ks = ()
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            o_rk = o_r[:, None] * (H * K) + o_k[None, :]
            b_k = load_columns(p_k, o_rk, (o_k < K)[None, :], K % BK == 0)
            b_held = tl.dot(b_s[j].to(b_k.dtype), tl.trans(b_k), b_held, input_precision=PRECISION)
            b_ks = b_ks + (b_k,)
        if g is not None:
            b_held *= tl.exp2(b_g)[None, :]
        b_x = ((b_v - b_held) * b_beta[None, :]).to(k.dtype.element_ty)
        # Ai is 0 above its diagonal by its unit: a mask of pairs would take the load apart
        b_Ait = tl.load(Ai + row * C + o_c[:, None] + o_c[None, :] * (HV * C), mask=m_c[None, :], other=0.0)
        b_new = tl.dot(b_x, b_Ait, input_precision=PRECISION)
        if v_new is not None:
            tl.store(v_new + row * V + o_vc, b_new.to(v_new.dtype.element_ty), mask=m_vc)
        b_decay = 1.0
        if g is not None:
            b_new *= to_chunk_end(b_g, b_gl, n, C)[None, :]
            b_decay = tl.exp2(b_gl)
        b_new = b_new.to(k.dtype.element_ty)
        b_next = ()
        for j in tl.static_range(NK):
            b_next = b_next + (tl.dot(b_new, b_ks[j], b_s[j] * b_decay, input_precision=PRECISION),)
        b_s = b_next

    if final_state is not None:
        store_state(final_state, p_n, b_s, o_v, K, V, BK)
