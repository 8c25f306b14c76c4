"""All that the delta rule's scan needs of a chunk's keys and gates: the decay's sums and the inverse, in one kernel."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from .solve_tril import close_dot, joined, pairs, store_block, store_pairs


@triton.jit
def diagonal_blocks(b_A, P: tl.constexpr, S: tl.constexpr):
    """Of [P S, P S], [P, S, S]. Each is where it was: no thread has to ask another one."""
    o_p = tl.arange(0, P)
    m = (o_p[:, None] == o_p[None, :])[:, None, :, None]
    return tl.sum(tl.where(m, tl.reshape(b_A, (P, S, P, S)), 0.0), axis=2)


@triton.jit
def blocks_below(b_A, P: tl.constexpr, S: tl.constexpr):
    """Of [2 P S, 2 P S], the lower left quarter of each diagonal block of 2 S: [P, S, S]."""
    o_p = tl.arange(0, 2 * P)
    m = (o_p[:, None] == o_p[None, :] + 1)[:, None, :, None]
    b_L = tl.sum(tl.where(m, tl.reshape(b_A, (2 * P, S, 2 * P, S)), 0.0), axis=2)
    _, b_L = tl.split(tl.permute(tl.reshape(b_L, (P, 2, S, S)), (0, 2, 3, 1)))
    return b_L


@triton.jit
def doubled(b_X, b_A, S: tl.constexpr, PRECISION: tl.constexpr):
    """From b_X [P, 16, 16], inverses of I + A's diagonal blocks of S, those of 2 S: X - X L X, L what lies between."""
    o_s = tl.arange(0, 16)
    m = (o_s[:, None] // (2 * S) == o_s[None, :] // (2 * S)) & (o_s[:, None] // S > o_s[None, :] // S)
    b_L = tl.where(m[None, :, :], b_A, 0.0)
    return b_X - close_dot(close_dot(b_X, b_L, PRECISION), b_X, PRECISION)


@triton.jit
def inverses_of_16(b_A, PRECISION: tl.constexpr):
    """(I + A)^-1 of strictly lower triangular blocks [P, 16, 16], from blocks of two on."""
    o_s = tl.arange(0, 16)
    m = (o_s[:, None] // 2 == o_s[None, :] // 2) & (o_s[:, None] > o_s[None, :])
    b_X = tl.where((o_s[:, None] == o_s[None, :])[None, :, :], 1.0, tl.where(m[None, :, :], -b_A, 0.0))
    b_X = doubled(b_X, b_A, 2, PRECISION)
    b_X = doubled(b_X, b_A, 4, PRECISION)
    return doubled(b_X, b_A, 8, PRECISION)


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def delta_prescan_kernel(
    k, beta, x, y, Ai, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, MERGE: tl.constexpr,
):  # fmt: skip
    """y = the chunk's sums of max(x log2 e, -126); Ai = (I + A)^-1, A[i, j] = beta_i <k_i, k_j> 2^(y_i - y_j), j < i.

    For one chunk and value head. A is one product; its blocks of 16 are inverted in the registers where it leaves them.
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
    # rows past the chunk's end repeat its last one, so that no load of keys needs a mask of rows
    o_r = tl.minimum(o_c, n - 1)
    b_A = tl.zeros([C, C], dtype=tl.float32)
    for i_k in tl.static_range(0, K, BK):
        o_k = i_k + tl.arange(0, BK)
        p_k = k + o_r[:, None] * (H * K) + o_k[None, :]
        if K % BK == 0:
            b_k = tl.load(p_k)
        else:
            b_k = tl.load(p_k, mask=(o_k < K)[None, :], other=0.0)
        b_A = tl.dot(b_k, tl.trans(b_k), b_A, input_precision=PRECISION)
    b_x = tl.load(x + row + o_c * HV, mask=m_c, other=0.0).to(tl.float32) * 1.4426950408889634
    # not tl.maximum, which would make -126 of a nan
    b_g = tl.cumsum(tl.where(b_x < -126.0, -126.0, b_x), axis=0)
    if y is not None:
        tl.store(y + row + o_c * HV, b_g, mask=m_c)
    b_A *= tl.exp2(tl.where(o_c[:, None] > o_c[None, :], b_g[:, None] - b_g[None, :], float("-inf")))
    b_A *= tl.load(beta + row + o_c * HV, mask=m_c, other=0.0).to(tl.float32)[:, None]

    stride = HV * C
    Ai += row * C
    b_X = inverses_of_16(diagonal_blocks(b_A, C // 16, 16), MERGE)
    o_d = tl.arange(0, C // 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    store_block(Ai, b_X, stride, n, o_d, o_d)
    if C >= 64:
        b_X0, b_X10, b_X1 = pairs(b_X, blocks_below(b_A, C // 32, 16), C // 32, 16, MERGE)
        store_pairs(Ai, b_X10, stride, n, C // 32, 16)
        b_X = joined(b_X0, b_X10, b_X1, C // 32, 16)
    if C == 128:
        b_X0, b_X10, b_X1 = pairs(b_X, blocks_below(b_A, C // 64, 32), C // 64, 32, MERGE)
        store_pairs(Ai, b_X10, stride, n, C // 64, 32)
        b_X = joined(b_X0, b_X10, b_X1, C // 64, 32)
    if C > 16:
        _, b_X10, _ = pairs(b_X, blocks_below(b_A, 1, C // 2), 1, C // 2, MERGE)
        store_pairs(Ai, b_X10, stride, n, 1, C // 2)
