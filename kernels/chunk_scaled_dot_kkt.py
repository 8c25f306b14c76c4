"""Scaled Gram matrix of the keys of each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def chunk_scaled_dot_kkt_kernel(
    k, beta, g, A, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):
    """A[i, j] = beta[i] <k[i], k[j]> 2^(g[i] - g[j]) for j < i, else 0, for one chunk and value head."""
    pid = tl.program_id(0).to(tl.int64)
    i_hv = pid % HV
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    o_c = tl.arange(0, C)
    m_c = o_t + o_c < length
    o_row = bos + o_t + o_c
    b_A = tl.zeros((C, C), tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        p_k = (o_row * H + i_hv // (HV // H))[:, None] * K + o_k[None, :]
        b_k = tl.load(k + p_k, mask=m_c[:, None] & (o_k < K)[None, :], other=0.0)
        b_A = tl.dot(b_k, tl.trans(b_k), b_A, input_precision=PRECISION)
    b_beta = tl.load(beta + o_row * HV + i_hv, mask=m_c, other=0.0).to(tl.float32)
    m_A = m_c[:, None] & (o_c[:, None] > o_c[None, :])
    b_A = b_A * b_beta[:, None]
    if g is not None:
        b_g = tl.load(g + o_row * HV + i_hv, mask=m_c, other=0.0)
        b_A *= tl.exp2(tl.where(m_A, b_g[:, None] - b_g[None, :], float("-inf")))
    p_A = (o_row * HV + i_hv)[:, None] * C + o_c[None, :]
    tl.store(A + p_A, tl.where(m_A, b_A, 0.0), mask=m_c[:, None])
