"""Gradient of the inverse of the unit lower triangular matrix of each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def solve_tril_vjp_kernel(
    d_Ai, Ai, d_A, cu_seqlens, chunk_table, T, NT, HV, C: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """d_A = -tril(Ai^T d_Ai Ai^T, -1) for one chunk and head."""
    pid = tl.program_id(0).to(tl.int64)
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    o_c = tl.arange(0, C)
    m_c = o_t + o_c < length
    p_c = ((bos + o_t + o_c) * HV + pid % HV) * C
    m_T = m_c[None, :] & (o_c[None, :] >= o_c[:, None])
    b_T = tl.load(Ai + p_c[None, :] + o_c[:, None], mask=m_T, other=0.0)
    m_lower = m_c[:, None] & (o_c[:, None] > o_c[None, :])
    p_A = p_c[:, None] + o_c[None, :]
    b_d = tl.load(d_Ai + p_A, mask=m_lower, other=0.0)
    if b_T.dtype == tl.float16:
        # cotangents may leave fp16's range; tf32 has its digits and float32's range
        b_T = b_T.to(tl.float32)
    b_d = tl.dot(b_T, b_d.to(b_T.dtype), input_precision=PRECISION)
    b_d = tl.dot(b_d.to(b_T.dtype), b_T, input_precision=PRECISION)
    tl.store(d_A + p_A, tl.where(m_lower, -b_d, 0.0), mask=m_c[:, None])
