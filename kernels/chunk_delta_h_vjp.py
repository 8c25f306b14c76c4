"""Gradient of the scan over chunk states: a reverse scan for the states, then each chunk by itself."""

import triton
import triton.language as tl

from ._chunks import chunk_rows, sequence_rows
from ._decay import chunk_decay, to_chunk_end
from .chunk_delta_h import channel_decay, load_state, store_state


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def chunk_delta_h_reverse_kernel(
    k, w, g, g_gamma, b_end, d_h, d_v_new, d_final_state, d_v, d_s, d_initial_state, cu_seqlens, chunk_offsets,
    T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_s = dS leaving each chunk; d_v = x = d_v_new + (ga k) dS; dS <- 2^g_C dS - w^T x + dh (no x without w).

    b_end: as in the forward scan. One program owns BV value columns of one sequence's head; dS is held transposed, in
    tiles [BV, BK].
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
    b_ds = load_state(d_final_state, p_n, o_v, K, V, BK, BV)

    n_t = tl.cdiv(length, C)
    for i in range(n_t):
        i_t = n_t - 1 - i
        o_t = i_t * C
        n = tl.minimum(length - o_t, C)
        p_k = k + ((bos + o_t) * H + i_h // (HV // H)) * K
        p_w = ((bos + o_t) * HV + i_h) * K
        p_v = ((bos + o_t) * HV + i_h) * V
        p_s = ((slot + i_t) * HV + i_h) * (K * V)
        o_vc = o_v[:, None] + o_c[None, :] * (HV * V)
        m_vc = (o_v < V)[:, None] & (o_c < n)[None, :]
        b_dh = load_state(d_h, p_s, o_v, K, V, BK, BV)
        if d_s is not None:
            store_state(d_s, p_s, b_ds, o_v, K, V, BK)
        b_g, b_gl = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
        if (d_v is not None) or (w is not None):
            b_x = tl.zeros([BV, C], dtype=tl.float32)
            for j in tl.static_range(NK):
                o_k = j * BK + tl.arange(0, BK)
                m_kc = (o_k < K)[:, None] & (o_c < n)[None, :]
                b_kt = tl.load(p_k + o_k[:, None] + o_c[None, :] * (H * K), mask=m_kc, other=0.0)
                b_x = tl.dot(b_ds[j].to(b_kt.dtype), b_kt, b_x, input_precision=PRECISION)
            if (g is not None) or (g_gamma is not None):
                b_x *= to_chunk_end(b_g, b_gl, n, C)[None, :]
            if d_v_new is not None:
                b_x += tl.load(d_v_new + p_v + o_vc, mask=m_vc, other=0.0).to(tl.float32)
            if d_v is not None:
                tl.store(d_v + p_v + o_vc, b_x.to(d_v.dtype.element_ty), mask=m_vc)
        b_next = ()
        for j in tl.static_range(NK):
            b_j = b_ds[j]
            if (g is not None) or (g_gamma is not None):
                b_j *= tl.exp2(b_gl)
            o_k = j * BK + tl.arange(0, BK)
            if b_end is not None:
                b_j *= channel_decay(b_end, (slot + i_t) * HV + i_h, o_k, K)[None, :]
            b_j += b_dh[j].to(tl.float32)
            if w is not None:
                m_ck = (o_c < n)[:, None] & (o_k < K)[None, :]
                b_w = tl.load(w + p_w + o_c[:, None] * (HV * K) + o_k[None, :], mask=m_ck, other=0.0)
                b_j = tl.dot((-b_x).to(b_w.dtype), b_w, b_j, input_precision=PRECISION)
            b_next = b_next + (b_j,)
        b_ds = b_next

    if d_initial_state is not None:
        store_state(d_initial_state, p_n, b_ds, o_v, K, V, BK)


@triton.jit
def value_cotangent(
    k, d_v_new, d_s, p_k, p_v, p_s, b_ga, o_v, n, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x = d_v_new + (ga k) dS of one chunk, columns o_v: [C, BV] in float32."""
    o_c = tl.arange(0, C)
    b_x = tl.zeros([C, BV], dtype=tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        m_k = o_k < K
        m_ck = (o_c < n)[:, None] & m_k[None, :]
        b_k = tl.load(k + p_k + o_c[:, None] * (H * K) + o_k[None, :], mask=m_ck, other=0.0)
        m_kv = m_k[:, None] & (o_v < V)[None, :]
        b_ds = tl.load(d_s + p_s + o_k[:, None] * V + o_v[None, :], mask=m_kv, other=0.0)
        b_x = tl.dot(b_k, b_ds.to(b_k.dtype), b_x, input_precision=PRECISION)
    b_x *= b_ga[:, None]
    if d_v_new is not None:
        m_cv = (o_c < n)[:, None] & (o_v < V)[None, :]
        b_x += tl.load(d_v_new + p_v + o_c[:, None] * (HV * V) + o_v[None, :], mask=m_cv, other=0.0).to(tl.float32)
    return b_x


@triton.jit(do_not_specialize=["T", "NT", "R", "H", "HV"])
def chunk_delta_h_write_vjp_kernel(
    k, v_new, g, g_gamma, b_end, h, d_v_new, d_v, d_s, d_k, d_w, d_g, d_b_end, cu_seqlens, chunk_table,
    T, NT, R, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk = sum over the group's heads of ga v_new dS^T, dw = -x h^T, and dg: BK key columns of a chunk's key head.

    d_v holds x, which is made again where it is None. d_g [K tiles, R rows, HV] takes each tile's share of
    t_i = <k_i, dk_i>: -ln2 t_i at its row, ln2 (sum of t + 2^g_C <h, dS>) at the last valid row, whose own t stays out.
    d_b_end = ln2 2^b_end <h, dS> channel by channel, the product over V alone.
    """
    LN2: tl.constexpr = 0.6931471805599453
    NK: tl.constexpr = (K + BK - 1) // BK
    pid = tl.program_id(0).to(tl.int64)
    i_k = pid % NK
    i_hk = (pid // NK) % H
    i_slot = pid // NK // H
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    row = bos + o_t
    o_c = tl.arange(0, C)
    m_c = o_c < n
    o_k = i_k.to(tl.int32) * BK + tl.arange(0, BK)
    m_k = o_k < K
    m_ck = m_c[:, None] & m_k[None, :]
    p_k = (row * H + i_hk) * K
    o_ck = o_c[:, None] * (H * K) + o_k[None, :]
    b_dk = tl.zeros([C, BK], dtype=tl.float32)

    for i_g in range(HV // H):
        i_h = i_hk * (HV // H) + i_g
        p_v = (row * HV + i_h) * V
        p_s = (i_slot * HV + i_h) * (K * V)
        b_g, b_gl = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
        b_ga = to_chunk_end(b_g, b_gl, n, C)
        b_dk_h = tl.zeros([C, BK], dtype=tl.float32)
        b_dw = tl.zeros([C, BK], dtype=tl.float32)
        b_hds = tl.zeros([BK], dtype=tl.float32)
        for i_v in range(0, V, BV):
            o_v = i_v + tl.arange(0, BV)
            m_cv = m_c[:, None] & (o_v < V)[None, :]
            o_cv = o_c[:, None] * (HV * V) + o_v[None, :]
            m_vk = (o_v < V)[:, None] & m_k[None, :]
            o_vk = o_v[:, None] + o_k[None, :] * V
            if (d_k is not None) or (d_g is not None) or (d_b_end is not None):
                b_v = tl.load(v_new + p_v + o_cv, mask=m_cv, other=0.0)
                b_ds = tl.load(d_s + p_s + o_vk, mask=m_vk, other=0.0)
                b_dk_h = tl.dot(b_v, b_ds.to(b_v.dtype), b_dk_h, input_precision=PRECISION)
            if (d_w is not None) or (d_g is not None) or (d_b_end is not None):
                b_h = tl.load(h + p_s + o_vk, mask=m_vk, other=0.0)
            if (d_g is not None) or (d_b_end is not None):
                b_hds += tl.sum(b_h.to(tl.float32) * b_ds.to(tl.float32), axis=0)
            if d_w is not None:
                if d_v is not None:
                    b_x = tl.load(d_v + p_v + o_cv, mask=m_cv, other=0.0)
                else:
                    b_x = value_cotangent(
                        k, d_v_new, d_s, p_k, p_v, p_s, b_ga, o_v, n, H, HV, K, V, C, BK, BV, PRECISION
                    ).to(b_h.dtype)  # fmt: skip
                b_dw = tl.dot(b_x, b_h, b_dw, input_precision=PRECISION)
        if d_b_end is not None:
            b_hds *= LN2 * channel_decay(b_end, i_slot * HV + i_h, o_k, K)
            tl.store(d_b_end + (i_slot * HV + i_h) * K + o_k, b_hds, mask=m_k)
        if d_w is not None:
            p_w = d_w + (row * HV + i_h) * K
            tl.store(p_w + o_c[:, None] * (HV * K) + o_k[None, :], (-b_dw).to(d_w.dtype.element_ty), mask=m_ck)
        b_dk_h *= b_ga[:, None]
        b_dk += b_dk_h
        if d_g is not None:
            b_k = tl.load(k + p_k + o_ck, mask=m_ck, other=0.0).to(tl.float32)
            b_t = tl.where(o_c < n - 1, tl.sum(b_k * b_dk_h, axis=1), 0.0)
            # At the last row the running sum is the whole one; reducing b_t once more breaks Triton 3.7 on sm_100.
            b_last = tl.cumsum(b_t, axis=0) + tl.exp2(b_gl) * tl.sum(b_hds, axis=0)
            b_dg = LN2 * tl.where(o_c == n - 1, b_last, -b_t)
            tl.store(d_g + (i_k * R + row) * HV + i_h + o_c * HV, b_dg, mask=m_c)
    if d_k is not None:
        tl.store(d_k + p_k + o_ck, b_dk.to(d_k.dtype.element_ty), mask=m_ck)
