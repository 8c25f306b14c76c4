"""Inverse of the unit lower triangular matrix of each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit
def diagonal_inverses(A, stride, n, C: tl.constexpr):
    """Inverses of the 16 x 16 diagonal blocks of I + A, [C / 16, 16, 16], by substitution in float32.

    Z = Ai - I obeys Z = -A - Z A, so its columns follow one by one from the last:
    Z[:, j] = -A[:, j] - sum over k > j of Z[:, k] A[k, j].
    """
    o_b = tl.arange(0, C // 16)[:, None] * 16
    o_s = tl.arange(0, 16)
    o_r = o_b + o_s[None, :]
    m_lower = (o_s[:, None] > o_s[None, :])[None, :, :]
    p_r = A + o_r * stride
    b_Z = -tl.load(p_r[:, :, None] + o_r[:, None, :], mask=(o_r < n)[:, :, None] & m_lower, other=0.0)
    for i in tl.static_range(2, 16):
        j = 15 - i
        b_a = tl.load(p_r + o_b + j, mask=(o_r < n) & (o_s > j)[None, :], other=0.0)
        b_z = tl.sum(b_Z * b_a[:, None, :], axis=2)
        b_Z = tl.where(m_lower & (o_s == j)[None, None, :], b_Z - b_z[:, :, None], b_Z)
    return tl.where((o_s[:, None] == o_s[None, :])[None, :, :], 1.0, b_Z)


@triton.jit
def store_block(Ai, b, stride, n, o_r, o_c):
    """Ai at rows o_r [P, S] and columns o_c [P, S] of the chunk: b [P, S, S]."""
    p = Ai + (o_r * stride)[:, :, None] + o_c[:, None, :]
    tl.store(p, b.to(Ai.dtype.element_ty), mask=(o_r < n)[:, :, None])


@triton.jit
def pair_blocks(b_X, A, stride, n, S: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr):
    """From the inverses b_X [C / S, S, S] of the diagonal blocks, for each pair of neighbours (X0, -X1 A10 X0, X1).

    They are the upper left, lower left and lower right block of the pair's inverse; A10 is its lower left block.
    """
    P: tl.constexpr = C // (2 * S)
    b_X0, b_X1 = tl.split(tl.permute(tl.reshape(b_X, (P, 2, S, S)), (0, 2, 3, 1)))
    o_c = tl.arange(0, P)[:, None] * (2 * S) + tl.arange(0, S)[None, :]
    o_r = o_c + S
    b_A = tl.load(A + (o_r * stride)[:, :, None] + o_c[:, None, :], mask=(o_r < n)[:, :, None], other=0.0)
    if P == 1:
        b_X10 = tl.dot(tl.reshape(b_X1, (S, S)), tl.reshape(b_A, (S, S)), input_precision=PRECISION)
        b_X10 = tl.reshape(tl.dot(b_X10, tl.reshape(b_X0, (S, S)), input_precision=PRECISION), (P, S, S))
    else:
        b_X10 = tl.dot(tl.dot(b_X1, b_A, input_precision=PRECISION), b_X0, input_precision=PRECISION)
    return b_X0, -b_X10, b_X1


@triton.jit
def merge(b_X, A, stride, n, S: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr):
    """[C / S, S, S] inverses of the diagonal blocks -> [C / 2S, 2S, 2S]."""
    P: tl.constexpr = C // (2 * S)
    b_X0, b_X10, b_X1 = pair_blocks(b_X, A, stride, n, S, C, PRECISION)
    b_top = tl.reshape(tl.permute(tl.join(b_X0, tl.zeros_like(b_X0)), (0, 1, 3, 2)), (P, S, 2 * S))
    b_bottom = tl.reshape(tl.permute(tl.join(b_X10, b_X1), (0, 1, 3, 2)), (P, S, 2 * S))
    return tl.reshape(tl.permute(tl.join(b_top, b_bottom), (0, 3, 1, 2)), (P, 2 * S, 2 * S))


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def solve_tril_kernel(
    A, Ai, cu_seqlens, chunk_table, T, NT, HV, C: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Ai = (I + A)^-1 for one chunk and head: 16-wide diagonal blocks by substitution, then merges 16 -> C."""
    pid = tl.program_id(0).to(tl.int64)
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = length - o_t
    stride = HV * C
    o_chunk = ((bos + o_t) * HV + pid % HV) * C
    A += o_chunk
    Ai += o_chunk
    b_X = diagonal_inverses(A, stride, n, C)
    if C >= 64:
        b_X = merge(b_X, A, stride, n, 16, C, PRECISION)
    if C == 128:
        b_X = merge(b_X, A, stride, n, 32, C, PRECISION)
    if C == 16:
        o_s = tl.arange(0, 16)[None, :]
        store_block(Ai, b_X, stride, n, o_s, o_s)
    else:
        S: tl.constexpr = C // 2
        o_s = tl.arange(0, S)[None, :]
        b_X0, b_X10, b_X1 = pair_blocks(b_X, A, stride, n, S, C, PRECISION)
        store_block(Ai, b_X0, stride, n, o_s, o_s)
        store_block(Ai, tl.zeros_like(b_X0), stride, n, o_s, o_s + S)
        store_block(Ai, b_X10, stride, n, o_s + S, o_s)
        store_block(Ai, b_X1, stride, n, o_s + S, o_s + S)
