"""All that the delta rule's scan needs of a chunk's keys and gates: the decay's sums and the inverse, in one kernel."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from .solve_tril import store_block


@triton.jit
def gram_blocks(
    k, b_gi, b_gj, b_rate, H, n, o_i, o_j,
    P: tl.constexpr, S: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """beta_i <k_i, k_j> 2^(g_i - g_j) of the rows o_i [P, S] and o_j [P, S] of the chunk, o_j < o_i: [P, S, S]."""
    b_A = tl.zeros([P, S, S], dtype=tl.float32)
    if P == 1:
        b_A = tl.reshape(b_A, (S, S))
    for i_k in tl.static_range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        m_i = (o_i < n)[:, :, None] & (o_k < K)[None, None, :]
        m_j = (o_j < n)[:, None, :] & (o_k < K)[None, :, None]
        b_i = tl.load(k + (o_i * H * K)[:, :, None] + o_k[None, None, :], mask=m_i, other=0.0)
        b_j = tl.load(k + (o_j * H * K)[:, None, :] + o_k[None, :, None], mask=m_j, other=0.0)
        if P == 1:
            b_A = tl.dot(tl.reshape(b_i, (S, BK)), tl.reshape(b_j, (BK, S)), b_A, input_precision=PRECISION)
        else:
            b_A = tl.dot(b_i, b_j, b_A, input_precision=PRECISION)
    b_A = tl.reshape(b_A, (P, S, S)) * b_rate[:, :, None]
    m = (o_i[:, :, None] > o_j[:, None, :]) & (o_i < n)[:, :, None]
    return b_A * tl.exp2(tl.where(m, b_gi[:, :, None] - b_gj[:, None, :], float("-inf")))


@triton.jit
def inverses_of_16(b_A):
    """(I + A)^-1 of strictly lower triangular blocks [P, 16, 16]: Z = Ai - I obeys Z = -A - Z A, column by column from
    the last."""
    o_s = tl.arange(0, 16)
    b_Z = -b_A
    for i in tl.static_range(2, 16):
        j = 15 - i
        b_a = tl.sum(tl.where((o_s == j)[None, None, :], b_A, 0.0), axis=2)
        b_z = tl.sum(b_Z * b_a[:, None, :], axis=2)
        b_Z = tl.where(((o_s[:, None] > o_s[None, :]) & (o_s == j)[None, :])[None, :, :], b_Z - b_z[:, :, None], b_Z)
    return tl.where((o_s[:, None] == o_s[None, :])[None, :, :], 1.0, b_Z)


@triton.jit
def halves(b, P: tl.constexpr, S: tl.constexpr):
    """[2 P S] as the even and the odd blocks of S: two of [P, S]."""
    return tl.split(tl.permute(tl.reshape(b, (P, 2, S)), (0, 2, 1)))


@triton.jit
def pairs(
    b_X, k, b_g, b_beta, H, n,
    S: tl.constexpr, C: tl.constexpr, K: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, MERGE: tl.constexpr,
):  # fmt: skip
    """From the inverses b_X [C / S, S, S] of the diagonal blocks, for each pair of neighbours (X0, -X1 A10 X0, X1)."""
    P: tl.constexpr = C // (2 * S)
    b_X0, b_X1 = tl.split(tl.permute(tl.reshape(b_X, (P, 2, S, S)), (0, 2, 3, 1)))
    b_gj, b_gi = halves(b_g, P, S)
    _, b_rate = halves(b_beta, P, S)
    o_j = tl.arange(0, P)[:, None] * (2 * S) + tl.arange(0, S)[None, :]
    b_A = gram_blocks(k, b_gi, b_gj, b_rate, H, n, o_j + S, o_j, P, S, K, BK, PRECISION)
    if P == 1:
        b_A = tl.dot(tl.reshape(b_X1, (S, S)), tl.reshape(b_A, (S, S)), input_precision=MERGE)
        b_A = tl.reshape(tl.dot(b_A, tl.reshape(b_X0, (S, S)), input_precision=MERGE), (P, S, S))
    else:
        b_A = tl.dot(tl.dot(b_X1, b_A, input_precision=MERGE), b_X0, input_precision=MERGE)
    return b_X0, -b_A, b_X1


@triton.jit
def joined(b_X0, b_X10, b_X1, P: tl.constexpr, S: tl.constexpr):
    """The pairs' inverses [P, 2 S, 2 S]."""
    b_top = tl.reshape(tl.permute(tl.join(b_X0, tl.zeros_like(b_X0)), (0, 1, 3, 2)), (P, S, 2 * S))
    b_bottom = tl.reshape(tl.permute(tl.join(b_X10, b_X1), (0, 1, 3, 2)), (P, S, 2 * S))
    return tl.reshape(tl.permute(tl.join(b_top, b_bottom), (0, 3, 1, 2)), (P, 2 * S, 2 * S))


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def delta_prescan_kernel(
    k, beta, x, y, Ai, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, MERGE: tl.constexpr,
):  # fmt: skip
    """y = the chunk's sums of max(x log2 e, -126); Ai = (I + A)^-1, A[i, j] = beta_i <k_i, k_j> 2^(y_i - y_j), j < i.

    For one chunk and value head. Only those blocks of A are made that the inverse needs.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_n, bos, length, o_t = chunk_rows(pid // HV, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    row = (bos + o_t) * HV + i_h
    k += ((bos + o_t) * H + i_h // (HV // H)) * K
    o_c = tl.arange(0, C)
    m_c = o_c < n
    b_beta = tl.load(beta + row + o_c * HV, mask=m_c, other=0.0).to(tl.float32)
    b_g = o_c.to(tl.float32) * 0.0
    if x is not None:
        b_x = tl.load(x + row + o_c * HV, mask=m_c, other=0.0).to(tl.float32) * 1.4426950408889634
        # not tl.maximum, which would make -126 of a nan
        b_g = tl.cumsum(tl.where(b_x < -126.0, -126.0, b_x), axis=0)
        if y is not None:
            tl.store(y + row + o_c * HV, b_g, mask=m_c)
    stride = HV * C
    Ai += row * C
    o_d = tl.arange(0, C // 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    b_gd = tl.reshape(b_g, (C // 16, 16))
    b_A = gram_blocks(
        k, b_gd, b_gd, tl.reshape(b_beta, (C // 16, 16)), H, n, o_d, o_d, C // 16, 16, K, BK, PRECISION
    )
    b_X = inverses_of_16(b_A)
    if C == 16:
        o_s = tl.arange(0, 16)[None, :]
        store_block(Ai, b_X, stride, n, o_s, o_s)
    else:
        if C >= 64:
            b_X0, b_X10, b_X1 = pairs(b_X, k, b_g, b_beta, H, n, 16, C, K, BK, PRECISION, MERGE)
            b_X = joined(b_X0, b_X10, b_X1, C // 32, 16)
        if C == 128:
            b_X0, b_X10, b_X1 = pairs(b_X, k, b_g, b_beta, H, n, 32, C, K, BK, PRECISION, MERGE)
            b_X = joined(b_X0, b_X10, b_X1, C // 64, 32)
        S: tl.constexpr = C // 2
        b_X0, b_X10, b_X1 = pairs(b_X, k, b_g, b_beta, H, n, S, C, K, BK, PRECISION, MERGE)
        o_s = tl.arange(0, S)[None, :]
        store_block(Ai, b_X0, stride, n, o_s, o_s)
        store_block(Ai, tl.zeros_like(b_X0), stride, n, o_s, o_s + S)
        store_block(Ai, b_X10, stride, n, o_s + S, o_s)
        store_block(Ai, b_X1, stride, n, o_s + S, o_s + S)
