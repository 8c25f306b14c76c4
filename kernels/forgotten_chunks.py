"""How many chunks of a sequence need not be scanned for what it leaves: those that it has forgotten by then."""

import triton
import triton.language as tl

from ._chunks import sequence_rows


@triton.jit
def log_growth(k, beta, row, o_t, n_t, i_t, length, i_h, H, HV, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr):
    """Sum over each chunk's tokens of log2 max(1, |1 - beta |k|^2|): what its updates may add to a vector's length."""
    o_c = tl.arange(0, C)
    o_k = tl.arange(0, BK)
    o_r = i_t[:, None] * C + o_c[None, :]
    m_r = (o_t < n_t)[:, None] & (o_r < length)
    p_k = k + (row * H + i_h // (HV // H)) * K + o_r[:, :, None] * (H * K) + o_k[None, None, :]
    b_k = tl.load(p_k, mask=m_r[:, :, None] & (o_k < K)[None, None, :], other=0.0).to(tl.float32)
    b_beta = tl.load(beta + row * HV + i_h + o_r * HV, mask=m_r, other=0.0).to(tl.float32)
    b_norm = tl.abs(1.0 - b_beta * tl.sum(b_k * b_k, axis=2))
    # not tl.maximum, which would make 1 of a nan
    return tl.sum(tl.log2(tl.where(b_norm <= 1.0, 1.0, b_norm)), axis=1)


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def forgotten_chunks_kernel(
    g, g_gamma, b_end, k, beta, forgotten, cu_seqlens, chunk_offsets, T, NT, H, HV,
    K: tl.constexpr, C: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WINDOW: tl.constexpr,
    FORGOTTEN: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """forgotten = the most chunks, from a sequence's begin on, after which the others multiply a state by 2^FORGOTTEN
    or less; in REVERSE from its end on. 0 where none of the WINDOW chunks at the other end is the first of those.

    One program looks at one sequence's head, BN chunks at a time.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_n = pid // HV
    bos, length, slot = sequence_rows(i_n, cu_seqlens, chunk_offsets, T, NT)
    n_t = tl.cdiv(length, C)
    o_n = tl.arange(0, BN)
    o_k = tl.arange(0, BK)
    found = tl.full([], -1, tl.int32)
    left = tl.full([], 0.0, tl.float32)
    b_left = tl.zeros([BK], dtype=tl.float32)
    for i in range(0, tl.minimum(n_t, WINDOW), BN):
        o_t = i + o_n
        m_t = (o_t < n_t) & (found < 0)
        i_t = o_t if REVERSE else n_t - 1 - o_t
        if b_end is not None:
            p_b = b_end + ((slot + i_t) * HV + i_h)[:, None] * K + o_k[None, :]
            b_lost = tl.load(p_b, mask=m_t[:, None] & (o_k < K)[None, :], other=0.0)
            b_below = (b_left[None, :] + tl.cumsum(b_lost, 0) <= FORGOTTEN) | (o_k >= K)[None, :]
            b_left += tl.sum(b_lost, 0)
            m_found = tl.min(b_below.to(tl.int32), 1) > 0
        else:
            b_log = tl.zeros([BN], dtype=tl.float32)
            if g is not None:
                row = bos + tl.minimum((i_t + 1) * C, length) - 1
                b_log += tl.load(g + row * HV + i_h, mask=m_t, other=0.0)
            if g_gamma is not None:
                b_log += tl.load(g_gamma + i_h) * 1.4426950408889634 * tl.minimum(length - i_t * C, C)
            if beta is not None:
                b_log += log_growth(k, beta, bos, o_t, tl.where(found < 0, n_t, 0), i_t, length, i_h, H, HV, K, C, BK)
            m_found = left + tl.cumsum(b_log, 0) <= FORGOTTEN
            left += tl.sum(b_log, 0)
        nearest = tl.min(tl.where(m_found & m_t, o_t, n_t), 0)
        found = tl.where(nearest < n_t, nearest, found)
    tl.store(forgotten + pid, tl.where(found < 0, 0, n_t - 1 - found))
