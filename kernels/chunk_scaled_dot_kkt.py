"""Scaled Gram matrix of the keys of each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def chunk_scaled_dot_kkt_kernel(
    k, beta, g, A, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A[i, j] = beta[i] <k[i], k[j]> 2^(g[i] - g[j]) for j < i, else 0, for one chunk and value head."""
    pid = tl.program_id(0).to(tl.int64)
    i_hv = pid % HV
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = length - o_t
    row = (bos + o_t) * HV + i_hv
    k += ((bos + o_t) * H + i_hv // (HV // H)) * K
    o_c = tl.arange(0, C)
    m_c = o_c < n
    b_A = tl.zeros((C, C), tl.float32)
    for i_k in range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)[None, :]
        p_k = o_c[:, None] * (tl.cast(H, tl.int64) * K) + o_k
        b_k = tl.load(k + p_k, mask=m_c[:, None] & (o_k < K), other=0.0)
        b_A = tl.dot(b_k, tl.trans(b_k), b_A, input_precision=PRECISION)
    m_A = m_c[:, None] & (o_c[:, None] > o_c[None, :])
    b_A *= tl.load(beta + row + o_c * HV, mask=m_c, other=0.0).to(tl.float32)[:, None]
    if g is not None:
        b_g = tl.load(g + row + o_c * HV, mask=m_c, other=0.0)
        b_A *= tl.exp2(tl.where(m_A, b_g[:, None] - b_g[None, :], float("-inf")))
    p_A = o_c[:, None] * (tl.cast(HV, tl.int64) * C) + o_c[None, :]
    tl.store(A + row * C + p_A, tl.where(m_A, b_A, 0.0), mask=m_c[:, None])
