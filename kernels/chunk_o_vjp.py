"""Gradient of the chunk output: by values and entering states, and by queries, keys and gate."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from ._decay import chunk_decay, pair_decay, pair_decay_transposed


@triton.jit(do_not_specialize=["scale", "T", "NT", "H", "HV"])
def chunk_o_vjp_vh_kernel(
    q, k, g, g_gamma, d_o, d_v, d_h, scale, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dh = scale (gam q)^T do and dv = scale (E * q k^T)^T do, for BV value columns of one chunk and value head."""
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_slot = pid // NV // HV
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    o_c = tl.arange(0, C)
    m_c = o_c < n
    m_v = o_v < V
    p_qk = ((bos + o_t) * H + i_h // (HV // H)) * K
    p_v = ((bos + o_t) * HV + i_h) * V
    p_h = (i_slot * HV + i_h) * (K * V)
    m_cv = m_c[:, None] & m_v[None, :]
    o_cv = o_c[:, None] * (HV * V) + o_v[None, :]
    b_do = tl.load(d_o + p_v + o_cv, mask=m_cv, other=0.0)
    b_g, _ = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)

    b_at = tl.zeros([C, C], dtype=tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        m_k = o_k < K
        m_kc = m_k[:, None] & m_c[None, :]
        b_qt = tl.load(q + p_qk + o_k[:, None] + o_c[None, :] * (H * K), mask=m_kc, other=0.0)
        if d_v is not None:
            m_ck = m_c[:, None] & m_k[None, :]
            b_k = tl.load(k + p_qk + o_c[:, None] * (H * K) + o_k[None, :], mask=m_ck, other=0.0)
            b_at = tl.dot(b_k, b_qt, b_at, input_precision=PRECISION)
        if d_h is not None:
            b_qt = (b_qt * tl.exp2(b_g)[None, :]).to(b_do.dtype)
            b_dh = tl.dot(b_qt, b_do, input_precision=PRECISION) * scale
            m_kv = m_k[:, None] & m_v[None, :]
            tl.store(d_h + p_h + o_k[:, None] * V + o_v[None, :], b_dh.to(d_h.dtype.element_ty), mask=m_kv)
    if d_v is not None:
        b_at *= pair_decay_transposed(b_g, n, C)
        b_dv = tl.dot(b_at.to(b_do.dtype), b_do, input_precision=PRECISION) * scale
        tl.store(d_v + p_v + o_cv, b_dv.to(d_v.dtype.element_ty), mask=m_cv)


@triton.jit(do_not_specialize=["scale", "T", "NT", "R", "H", "HV"])
def chunk_o_vjp_qkg_kernel(
    q, k, v, h, g, g_gamma, d_o, d_q, d_k, d_g, scale, cu_seqlens, chunk_table, T, NT, R, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq = P k + gam d h^T, dk = P^T q, summed over the group's heads, for BK key columns of one chunk and key head.

    d = scale do, P = E * d v^T. d_g [K tiles, R rows, HV] takes each tile's share of the pair sums
    ln2 (rowsum Z - colsum Z + gam <q, d h^T>), Z = tril(P * q k^T, -1).
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
    p_ck = (row * H + i_hk) * K + o_c[:, None] * (H * K) + o_k[None, :]
    b_q = tl.load(q + p_ck, mask=m_ck, other=0.0)
    b_k = tl.load(k + p_ck, mask=m_ck, other=0.0)
    b_dq = tl.zeros([C, BK], dtype=tl.float32)
    b_dk = tl.zeros([C, BK], dtype=tl.float32)

    for i_g in range(HV // H):
        i_h = i_hk * (HV // H) + i_g
        p_v = (row * HV + i_h) * V
        p_h = (i_slot * HV + i_h) * (K * V)
        b_g, _ = chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C)
        b_p = tl.zeros([C, C], dtype=tl.float32)
        b_pt = tl.zeros([C, C], dtype=tl.float32)
        b_dq_h = tl.zeros([C, BK], dtype=tl.float32)
        for i_v in range(0, V, BV):
            o_v = i_v + tl.arange(0, BV)
            m_v = o_v < V
            m_cv = m_c[:, None] & m_v[None, :]
            o_cv = o_c[:, None] * (HV * V) + o_v[None, :]
            b_do = tl.load(d_o + p_v + o_cv, mask=m_cv, other=0.0)
            b_v = tl.load(v + p_v + o_cv, mask=m_cv, other=0.0)
            if (d_q is not None) or (d_g is not None):
                m_vk = m_v[:, None] & m_k[None, :]
                b_ht = tl.load(h + p_h + o_v[:, None] + o_k[None, :] * V, mask=m_vk, other=0.0)
                b_p = tl.dot(b_do, tl.trans(b_v), b_p, input_precision=PRECISION)
                b_dq_h = tl.dot(b_do, b_ht, b_dq_h, input_precision=PRECISION)
            if d_k is not None:
                b_pt = tl.dot(b_v, tl.trans(b_do), b_pt, input_precision=PRECISION)
        if d_k is not None:
            b_pt *= pair_decay_transposed(b_g, n, C) * scale
            b_dk = tl.dot(b_pt.to(b_q.dtype), b_q, b_dk, input_precision=PRECISION)
        if (d_q is not None) or (d_g is not None):
            b_p *= pair_decay(b_g, n, C) * scale
            b_dq_h *= tl.exp2(b_g)[:, None] * scale
            b_dq = tl.dot(b_p.to(b_k.dtype), b_k, b_dq + b_dq_h, input_precision=PRECISION)
        if d_g is not None:
            b_z = b_p * tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION)
            b_z = tl.where(o_c[:, None] > o_c[None, :], b_z, 0.0)
            b_dg = tl.sum(b_z, axis=1) - tl.sum(b_z, axis=0) + tl.sum(b_q * b_dq_h, axis=1)
            tl.store(d_g + (i_k * R + row) * HV + i_h + o_c * HV, LN2 * b_dg, mask=m_c)
    if d_q is not None:
        tl.store(d_q + p_ck, b_dq.to(d_q.dtype.element_ty), mask=m_ck)
    if d_k is not None:
        tl.store(d_k + p_ck, b_dk.to(d_k.dtype.element_ty), mask=m_ck)
