"""Gradient of the scaled Gram matrix of each chunk's keys."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit
def key_offsets(n, H, i_k, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr):
    """Offsets from the chunk's first row of BK columns of its keys, and which of them are valid: [C, BK]."""
    o_c = tl.arange(0, C)
    o_k = i_k + tl.arange(0, BK)[None, :]
    return o_c[:, None] * (tl.cast(H, tl.int64) * K) + o_k, (o_c < n)[:, None] & (o_k < K)


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def chunk_scaled_dot_kkt_vjp_kernel(
    d_A, k, beta, g, d_k, d_beta, d_g, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_k of one key head and d_beta, d_g of its value heads, in one chunk.

    With D = dA 2^(g_i - g_j) below the diagonal, P = beta_i D and R = k k^T: d_beta = rowsum(D R),
    d_g = ln 2 (rowsum - colsum)(P R), and d_k = (P + P^T) k with P summed over the value heads first.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % H
    i_n, bos, length, o_t = chunk_rows(pid // H, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = length - o_t
    group = HV // H
    k += ((bos + o_t) * H + i_h) * K
    o_c = tl.arange(0, C)
    m_c = o_c < n
    m_A = m_c[:, None] & (o_c[:, None] > o_c[None, :])
    p_A = o_c[:, None] * (tl.cast(HV, tl.int64) * C) + o_c[None, :]
    if (d_beta is not None) or (d_g is not None):
        b_R = tl.zeros((C, C), tl.float32)
        for i_k in range(0, K, BK):
            p_k, m_k = key_offsets(n, H, i_k, K, C, BK)
            b_k = tl.load(k + p_k, mask=m_k, other=0.0)
            b_R = tl.dot(b_k, tl.trans(b_k), b_R, input_precision=PRECISION)
    b_P = tl.zeros((C, C), tl.float32)
    for i_g in range(group):
        row = (bos + o_t) * HV + i_h * group + i_g
        b_D = tl.load(d_A + row * C + p_A, mask=m_A, other=0.0)
        b_beta = tl.load(beta + row + o_c * HV, mask=m_c, other=0.0).to(tl.float32)
        if g is not None:
            b_g = tl.load(g + row + o_c * HV, mask=m_c, other=0.0)
            b_D *= tl.exp2(tl.where(m_A, b_g[:, None] - b_g[None, :], float("-inf")))
        if d_k is not None:
            b_P += b_D * b_beta[:, None]
        if (d_beta is not None) or (d_g is not None):
            b_D *= b_R
            b_rows = tl.sum(b_D, axis=1)
        if d_beta is not None:
            tl.store(d_beta + row + o_c * HV, b_rows.to(d_beta.dtype.element_ty), mask=m_c)
        if d_g is not None:
            b_dg = b_rows * b_beta - tl.sum(b_D * b_beta[:, None], axis=0)
            tl.store(d_g + row + o_c * HV, b_dg * 0.6931471805599453, mask=m_c)
    if d_k is not None:
        d_k += ((bos + o_t) * H + i_h) * K
        b_P += tl.trans(b_P)
        for i_k in range(0, K, BK):
            p_k, m_k = key_offsets(n, H, i_k, K, C, BK)
            b_k = tl.load(k + p_k, mask=m_k, other=0.0)
            if b_k.dtype == tl.float16:
                # cotangents may leave fp16's range; tf32 has its digits and float32's range
                b_dk = tl.dot(b_P, b_k.to(tl.float32), input_precision="tf32")
            else:
                b_dk = tl.dot(b_P.to(b_k.dtype), b_k, input_precision=PRECISION)
            tl.store(d_k + p_k, b_dk.to(d_k.dtype.element_ty), mask=m_k)
