"""The reverse scan of the delta rule: cotangents of the states and of what the chunks' inverses are applied to."""

import triton
import triton.language as tl

from ._chunks import sequence_rows
from ._columns import load_columns
from ._decay import chunk_decay, to_chunk_end
from .chunk_delta_h import load_state, store_state


@triton.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def chunk_delta_reverse_kernel(
    q, k, beta, Ai, g, d_o, d_final_state, d_x, d_s, d_initial_state, forgotten, scale, cu_seqlens, chunk_offsets,
    T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_s = dS leaving each chunk; d_x = Ai^T (d_x + (ga k) dS), where d_x holds what comes through the chunk's own
    output; dS <- 2^g_C dS + scale (gam q)^T d_o - (beta gam k)^T d_x.

    The last ``forgotten`` chunks of a head, if any, and dS after them do not count, and are not scanned. One program
    owns BV value columns of one sequence's head; dS is held transposed, in tiles [BV, BK].
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
    b_ds = load_state(d_final_state, p_n, o_first, K, V, BK, BV)
    for i in range(n_t):
        i_t = n_t - 1 - i
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        m_c = o_c < n
        # rows past the chunk's end repeat its last one, so that no load needs a mask of rows: their factors are 0
        o_r = tl.minimum(o_c, n - 1)
        p_qk = ((bos + o_t) * H + i_h // (HV // H)) * K
        row = (bos + o_t) * HV + i_h
        o_vc = o_v[:, None] + o_c[None, :] * (HV * V)
        m_vc = (o_v < V)[:, None] & m_c[None, :]
        o_vr = o_v[:, None] + o_r[None, :] * (HV * V)
        b_own = load_columns(d_x + row * V, o_vr, (o_v < V)[:, None], V % BV == 0).to(tl.float32)
        b_do = load_columns(d_o + row * V, o_vr, (o_v < V)[:, None], V % BV == 0)
        b_beta = tl.load(beta + row + o_c * HV, mask=m_c, other=0.0).to(tl.float32)
        b_g, b_gl = chunk_decay(g, None, i_h, bos, o_t, length, HV, C)
        if d_s is not None:
            store_state(d_s, ((slot + i_t) * HV + i_h) * (K * V), b_ds, o_v, K, V, BK)
        b_x = tl.zeros([BV, C], dtype=tl.float32)
        b_ks = ()
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            o_rk = o_r[:, None] * (H * K) + o_k[None, :]
            b_k = load_columns(k + p_qk, o_rk, (o_k < K)[None, :], K % BK == 0)
            b_x = tl.dot(b_ds[j].to(b_k.dtype), tl.trans(b_k), b_x, input_precision=PRECISION)
            b_ks = b_ks + (b_k,)
        if g is not None:
            b_x *= to_chunk_end(b_g, b_gl, n, C)[None, :]
        b_x = (b_x + b_own).to(k.dtype.element_ty)
        # Ai is 0 above its diagonal by its unit: a mask of pairs would take the load apart
        b_Ai = tl.load(Ai + row * C + o_c[:, None] * (HV * C) + o_c[None, :], mask=m_c[:, None], other=0.0)
        b_dx = tl.dot(b_x, b_Ai, input_precision=PRECISION)
        tl.store(d_x + row * V + o_vc, b_dx.to(d_x.dtype.element_ty), mask=m_vc)
        b_read, b_held, b_decay = tl.where(m_c, scale, 0.0), -b_beta, 1.0
        if g is not None:
            b_read *= tl.exp2(b_g)
            b_held *= tl.exp2(b_g)
            b_decay = tl.exp2(b_gl)
        b_do = (b_do * b_read[None, :]).to(k.dtype.element_ty)
        b_dx = (b_dx * b_held[None, :]).to(k.dtype.element_ty)
        b_next = ()
        for j in tl.static_range(NK):
            o_k = j * BK + tl.arange(0, BK)
            o_rk = o_r[:, None] * (H * K) + o_k[None, :]
            b_q = load_columns(q + p_qk, o_rk, (o_k < K)[None, :], K % BK == 0)
            b_j = tl.dot(b_do, b_q, b_ds[j] * b_decay, input_precision=PRECISION)
            b_next = b_next + (tl.dot(b_dx, b_ks[j], b_j, input_precision=PRECISION),)
        b_ds = b_next

    if d_initial_state is not None:
        store_state(d_initial_state, p_n, b_ds, o_v, K, V, BK)
