"""Gradient of the chunk output: by values and entering states, and by queries, keys and gate."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from ._decay import pair_decay, pair_decay_transposed, row_decay


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
    b_g = row_decay(g, g_gamma, i_h, bos + o_t, o_c, n, HV)

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
        b_at *= pair_decay_transposed(b_g, b_g, o_c, o_c, n)
        b_dv = tl.dot(b_at.to(b_do.dtype), b_do, input_precision=PRECISION) * scale
        tl.store(d_v + p_v + o_cv, b_dv.to(d_v.dtype.element_ty), mask=m_cv)


@triton.jit
def value_products(x, y, p_x, p_y, o_x, o_y, HV, n, V: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr):
    """<x_i, y_j> over V, for rows o_x of x and o_y of y in a chunk of n rows: float32."""
    b_p = tl.zeros([o_x.shape[0], o_y.shape[0]], dtype=tl.float32)
    for i_v in range(0, V, BV):
        o_v = i_v + tl.arange(0, BV)
        m_x = (o_x < n)[:, None] & (o_v < V)[None, :]
        m_y = (o_v < V)[:, None] & (o_y < n)[None, :]
        b_x = tl.load(x + p_x + o_x[:, None] * (HV * V) + o_v[None, :], mask=m_x, other=0.0)
        b_yt = tl.load(y + p_y + o_y[None, :] * (HV * V) + o_v[:, None], mask=m_y, other=0.0)
        b_p = tl.dot(b_x, b_yt, b_p, input_precision=PRECISION)
    return b_p


@triton.jit
def load_keys(x, p_x, o_c, o_k, H, n, K: tl.constexpr):
    """Rows o_c and columns o_k of a chunk's queries or keys; 0 past its n rows and past K."""
    m = (o_c < n)[:, None] & (o_k < K)[None, :]
    return tl.load(x + p_x + o_c[:, None] * (H * K) + o_k[None, :], mask=m, other=0.0)


@triton.jit(do_not_specialize=["scale", "T", "NT", "R", "H", "HV"])
def chunk_o_vjp_qkg_kernel(
    q, k, v, h, g, g_gamma, d_o, d_q, d_k, d_g, scale, cu_seqlens, chunk_table, T, NT, R, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dq = P k + gam d h^T, dk = P^T q, summed over the group's heads: BC rows, BK key columns of a chunk's key head.

    d = scale do, P = E * d v^T. The rows stand first as queries, against the rows up to theirs, then as keys, against
    those from theirs on: each role makes its own products, because P's accumulator transposed as an operand is
    miscompiled on Hopper. d_g [K tiles, R rows, HV] takes the tile's share of the pair sums
    ln2 (rowsum Z - colsum Z + gam <q, d h^T>), Z = tril(P * q k^T, -1).
    """
    LN2: tl.constexpr = 0.6931471805599453
    NC: tl.constexpr = C // BC
    NK: tl.constexpr = (K + BK - 1) // BK
    pid = tl.program_id(0).to(tl.int64)
    i_k = pid % NK
    i_c = ((pid // NK) % NC).to(tl.int32)
    i_hk = (pid // NK // NC) % H
    i_slot = pid // NK // NC // H
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    row = bos + o_t
    o_c = i_c * BC + tl.arange(0, BC)
    o_k = i_k.to(tl.int32) * BK + tl.arange(0, BK)
    p_k = (row * H + i_hk) * K
    b_dq = tl.zeros([BC, BK], dtype=tl.float32)
    b_dk = tl.zeros([BC, BK], dtype=tl.float32)

    for i_g in range(HV // H):
        i_h = i_hk * (HV // H) + i_g
        p_v = (row * HV + i_h) * V
        p_h = h + (i_slot * HV + i_h) * (K * V)
        b_g = row_decay(g, g_gamma, i_h, row, o_c, n, HV)
        b_dg = tl.zeros([BC], dtype=tl.float32)
        if (d_q is not None) or (d_g is not None):
            b_dq_h = tl.zeros([BC, BK], dtype=tl.float32)
            for i_v in range(0, V, BV):
                o_v = i_v + tl.arange(0, BV)
                m_cv = (o_c < n)[:, None] & (o_v < V)[None, :]
                m_vk = (o_v < V)[:, None] & (o_k < K)[None, :]
                b_do = tl.load(d_o + p_v + o_c[:, None] * (HV * V) + o_v[None, :], mask=m_cv, other=0.0)
                b_ht = tl.load(p_h + o_v[:, None] + o_k[None, :] * V, mask=m_vk, other=0.0)
                b_dq_h = tl.dot(b_do, b_ht, b_dq_h, input_precision=PRECISION)
            b_dq_h *= tl.exp2(b_g)[:, None] * scale
            if d_g is not None:
                b_dg += tl.sum(load_keys(q, p_k, o_c, o_k, H, n, K) * b_dq_h, axis=1)
            b_dq += b_dq_h
            for j in range(i_c + 1):
                o_j = j * BC + tl.arange(0, BC)
                b_gj = row_decay(g, g_gamma, i_h, row, o_j, n, HV)
                b_p = value_products(d_o, v, p_v, p_v, o_c, o_j, HV, n, V, BV, PRECISION)
                b_p *= pair_decay(b_g, b_gj, o_c, o_j, n) * scale
                b_k = load_keys(k, p_k, o_j, o_k, H, n, K)
                if d_g is not None:
                    b_q = load_keys(q, p_k, o_c, o_k, H, n, K)
                    b_z = b_p * tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION)
                    b_dg += tl.sum(tl.where(o_c[:, None] > o_j[None, :], b_z, 0.0), axis=1)
                b_dq = tl.dot(b_p.to(b_k.dtype), b_k, b_dq, input_precision=PRECISION)
        if (d_k is not None) or (d_g is not None):
            for i in range(i_c, NC):
                o_i = i * BC + tl.arange(0, BC)
                b_gi = row_decay(g, g_gamma, i_h, row, o_i, n, HV)
                b_pt = value_products(v, d_o, p_v, p_v, o_c, o_i, HV, n, V, BV, PRECISION)
                b_pt *= pair_decay_transposed(b_g, b_gi, o_c, o_i, n) * scale
                b_q = load_keys(q, p_k, o_i, o_k, H, n, K)
                if d_g is not None:
                    b_k = load_keys(k, p_k, o_c, o_k, H, n, K)
                    b_z = b_pt * tl.dot(b_k, tl.trans(b_q), input_precision=PRECISION)
                    b_dg -= tl.sum(tl.where(o_i[None, :] > o_c[:, None], b_z, 0.0), axis=1)
                b_dk = tl.dot(b_pt.to(b_q.dtype), b_q, b_dk, input_precision=PRECISION)
        if d_g is not None:
            tl.store(d_g + (i_k * R + row) * HV + i_h + o_c * HV, LN2 * b_dg, mask=o_c < n)

    m_ck = (o_c < n)[:, None] & (o_k < K)[None, :]
    p_ck = p_k + o_c[:, None] * (H * K) + o_k[None, :]
    if d_q is not None:
        tl.store(d_q + p_ck, b_dq.to(d_q.dtype.element_ty), mask=m_ck)
    if d_k is not None:
        tl.store(d_k + p_ck, b_dk.to(d_k.dtype.element_ty), mask=m_ck)
