"""Output of each chunk from scores and queries that carry scale and decay already."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from .recompute_w_u import load_lower


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def chunk_o_k_kernel(
    qg, A, v, h, o, cu_seqlens, chunk_table, T, NT, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o = qg h + tril(A) v, for BV value columns of one chunk and value head."""
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
    p_h = h + (i_slot * HV + i_h) * (K * V)
    b_o = tl.zeros([C, BV], dtype=tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        m_k = o_k < K
        m_ck = m_c[:, None] & m_k[None, :]
        b_q = tl.load(qg + row * K + o_c[:, None] * (HV * K) + o_k[None, :], mask=m_ck, other=0.0)
        b_h = tl.load(p_h + o_k[:, None] * V + o_v[None, :], mask=m_k[:, None] & m_v[None, :], other=0.0)
        b_o = tl.dot(b_q, b_h, b_o, input_precision=PRECISION)
    m_cv = m_c[:, None] & m_v[None, :]
    o_cv = o_c[:, None] * (HV * V) + o_v[None, :]
    b_v = tl.load(v + row * V + o_cv, mask=m_cv, other=0.0)
    b_A = load_lower(A + row * C, HV * C, n, o_c, C)
    b_o = tl.dot(b_A, b_v, b_o, input_precision=PRECISION)
    tl.store(o + row * V + o_cv, b_o.to(o.dtype.element_ty), mask=m_cv)
