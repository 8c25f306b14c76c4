"""Gradient of the chunk output: by what is read, queries and scores, and by what was written, values and states."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def chunk_o_k_vjp_write_kernel(
    d_o, qg, A, d_v, d_h, cu_seqlens, chunk_table, T, NT, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dv = tril(A)^T do and dh = qg^T do, for BV value columns of one chunk and value head."""
    NV: tl.constexpr = (V + BV - 1) // BV
    pid = tl.program_id(0).to(tl.int64)
    o_v = (pid % NV).to(tl.int32) * BV + tl.arange(0, BV)
    i_h = (pid // NV) % HV
    i_slot = pid // NV // HV
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    row = (bos + o_t) * HV + i_h
    o_c = tl.arange(0, C)
    m_c = o_c < n
    m_v = o_v < V
    m_cv = m_c[:, None] & m_v[None, :]
    o_cv = o_c[:, None] * (HV * V) + o_v[None, :]
    b_do = tl.load(d_o + row * V + o_cv, mask=m_cv, other=0.0)
    if d_v is not None:
        m_A = m_c[None, :] & (o_c[None, :] >= o_c[:, None])
        b_At = tl.load(A + row * C + o_c[None, :] * (HV * C) + o_c[:, None], mask=m_A, other=0.0)
        b_dv = tl.dot(b_At, b_do, input_precision=PRECISION)
        tl.store(d_v + row * V + o_cv, b_dv.to(d_v.dtype.element_ty), mask=m_cv)
    if d_h is not None:
        p_h = d_h + (i_slot * HV + i_h) * (K * V)
        for i_k in range(0, K, BK):
            o_k = i_k + tl.arange(0, BK)
            m_k = o_k < K
            m_kc = m_k[:, None] & m_c[None, :]
            b_qt = tl.load(qg + row * K + o_k[:, None] + o_c[None, :] * (HV * K), mask=m_kc, other=0.0)
            b_dh = tl.dot(b_qt, b_do, input_precision=PRECISION)
            p_kv = p_h + o_k[:, None] * V + o_v[None, :]
            tl.store(p_kv, b_dh.to(d_h.dtype.element_ty), mask=m_k[:, None] & m_v[None, :])


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def chunk_o_k_vjp_read_kernel(
    d_o, v, h, d_qg, d_A, cu_seqlens, chunk_table, T, NT, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dqg = do h^T and dA = tril(do v^T) for one chunk and value head."""
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_slot = pid // HV
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    row = (bos + o_t) * HV + i_h
    o_c = tl.arange(0, C)
    m_c = o_c < n
    if d_A is not None:
        b_A = tl.zeros([C, C], dtype=tl.float32)
        for i_v in range(0, V, BV):
            o_v = i_v + tl.arange(0, BV)
            m_v = o_v < V
            p_do = d_o + row * V + o_c[:, None] * (HV * V) + o_v[None, :]
            b_do = tl.load(p_do, mask=m_c[:, None] & m_v[None, :], other=0.0)
            p_v = v + row * V + o_v[:, None] + o_c[None, :] * (HV * V)
            b_vt = tl.load(p_v, mask=m_v[:, None] & m_c[None, :], other=0.0)
            b_A = tl.dot(b_do, b_vt, b_A, input_precision=PRECISION)
        b_A = tl.where(o_c[:, None] >= o_c[None, :], b_A, 0.0)
        p_A = d_A + row * C + o_c[:, None] * (HV * C) + o_c[None, :]
        tl.store(p_A, b_A.to(d_A.dtype.element_ty), mask=m_c[:, None])
    if d_qg is not None:
        p_h = h + (i_slot * HV + i_h) * (K * V)
        for i_k in range(0, K, BK):
            o_k = i_k + tl.arange(0, BK)
            m_k = o_k < K
            b_dq = tl.zeros([C, BK], dtype=tl.float32)
            for i_v in range(0, V, BV):
                o_v = i_v + tl.arange(0, BV)
                m_v = o_v < V
                p_do = d_o + row * V + o_c[:, None] * (HV * V) + o_v[None, :]
                b_do = tl.load(p_do, mask=m_c[:, None] & m_v[None, :], other=0.0)
                p_ht = p_h + o_k[None, :] * V + o_v[:, None]
                b_ht = tl.load(p_ht, mask=m_k[None, :] & m_v[:, None], other=0.0)
                b_dq = tl.dot(b_do, b_ht, b_dq, input_precision=PRECISION)
            p_dq = d_qg + row * K + o_c[:, None] * (HV * K) + o_k[None, :]
            tl.store(p_dq, b_dq.to(d_qg.dtype.element_ty), mask=m_c[:, None] & m_k[None, :])
