"""Gradient of the inverse of the unit lower triangular matrix of each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit
def load_transposed(Ai, p_row, n, o_i, o_j, C: tl.constexpr):
    """Ai^T at rows o_i and columns o_j of the chunk, its upper triangle; p_row is where Ai's rows o_j begin."""
    m = (o_j < n)[None, :] & (o_j[None, :] >= o_i[:, None])
    b_T = tl.load(Ai + p_row[None, :] + o_i[:, None], mask=m, other=0.0)
    if b_T.dtype == tl.float16:
        # cotangents may leave fp16's range; tf32 has its digits and float32's range
        b_T = b_T.to(tl.float32)
    return b_T


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def solve_tril_vjp_kernel(
    d_Ai, Ai, d_A, cu_seqlens, chunk_table, T, NT, HV, C: tl.constexpr, BC: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """d_A = -tril(Ai^T d_Ai Ai^T, -1) for one chunk and head.

    By BC columns of Ai^T d_Ai at a time: ieee dots keep their operands in registers, and all C columns spill.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    row = bos + o_t
    n = length - o_t
    i_h = pid % HV
    o_i = tl.arange(0, C)
    b_dA = tl.zeros((C, C), tl.float32)
    for i_c in range(0, C, BC):
        o_c = i_c + tl.arange(0, BC)
        b_W = tl.zeros((C, BC), tl.float32)
        for i_j in range(0, C, BC):
            o_j = i_j + tl.arange(0, BC)
            p_j = ((row + o_j) * HV + i_h) * C
            b_T = load_transposed(Ai, p_j, n, o_i, o_j, C)
            m_d = (o_j < n)[:, None] & (o_j[:, None] > o_c[None, :])
            b_d = tl.load(d_Ai + p_j[:, None] + o_c[None, :], mask=m_d, other=0.0)
            b_W = tl.dot(b_T, b_d.to(b_T.dtype), b_W, input_precision=PRECISION)
        b_T = load_transposed(Ai, ((row + o_i) * HV + i_h) * C, n, o_c, o_i, C)
        b_dA = tl.dot(b_W.to(b_T.dtype), b_T, b_dA, input_precision=PRECISION)
    b_dA = tl.where(o_i[:, None] > o_i[None, :], -b_dA, 0.0)
    p_i = ((row + o_i) * HV + i_h) * C
    tl.store(d_A + p_i[:, None] + o_i[None, :], b_dA, mask=(o_i < n)[:, None])
