"""From which chunk a piece of a sequence can be scanned with nothing entering."""

import triton
import triton.language as tl


@triton.jit
def sum_of_pairs(b_x, b_y):
    return b_x + b_y


@triton.jit(do_not_specialize=["T", "H", "HV", "pieces"])
def piece_starts_kernel(
    k, beta, g, starts, T, H, HV, pieces,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BW: tl.constexpr, WINDOW: tl.constexpr,
    FORGOTTEN: tl.constexpr,
):  # fmt: skip
    """starts = the last chunk from which on all that came before it is multiplied by 2^FORGOTTEN or less before the
    piece begins, where it is one of the WINDOW before the piece; the sequence's first chunk if that is; else -1.

    What a chunk multiplies by is at most 2^(g_C + sum over its rows of log2 max(1, |1 - beta |k|^2|)). One program goes
    back from one piece of one sequence's head, BW chunks at a time.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_p = (pid // HV % pieces).to(tl.int32)
    i_n = pid // HV // pieces
    begin = i_p * tl.cdiv(T, C) // pieces
    o_w = tl.arange(0, WINDOW)
    p_g = g + (i_n * T + (begin - o_w) * C - 1) * HV + i_h
    b_least = tl.sum(tl.load(p_g, mask=o_w < begin, other=0.0), axis=0)
    start = tl.where(begin == 0, 0, -1)
    # keys add to the loss: where the gates alone are too weak, none are read
    i = tl.where((b_least <= FORGOTTEN) | (begin <= WINDOW), BW, WINDOW + BW)
    o_t = tl.arange(0, BW)
    o_r = tl.arange(0, BW * C)
    o_k = tl.arange(0, BK)
    loss = 0.0
    while (i <= WINDOW) & (start < 0):
        # of chunks before the sequence there are no rows
        i_t = begin - i
        row = i_n * T + i_t * C
        m_t = i_t + o_t >= 0
        m_r = i_t * C + o_r >= 0
        b_k = tl.load(
            k + (row * H + i_h // (HV // H)) * K + o_r[:, None] * (H * K) + o_k[None, :],
            mask=m_r[:, None] & (o_k < K)[None, :], other=0.0,
        ).to(tl.float32)  # fmt: skip
        b_beta = tl.load(beta + row * HV + i_h + o_r * HV, mask=m_r, other=0.0).to(tl.float32)
        b_norm = tl.abs(1.0 - b_beta * tl.sum(b_k * b_k, axis=1))
        # not tl.maximum, which would make 1 of a nan
        b_grown = tl.log2(tl.where(b_norm <= 1.0, 1.0, b_norm))
        b_loss = tl.sum(tl.reshape(b_grown, (BW, C)), axis=1)
        b_loss += tl.load(g + (row + C - 1) * HV + i_h + o_t * (C * HV), mask=m_t, other=0.0)
        b_left = loss + tl.associative_scan(b_loss, 0, sum_of_pairs, reverse=True)
        b_start = tl.where(m_t & ((b_left <= FORGOTTEN) | (i_t + o_t == 0)), i_t + o_t, -1)
        start = tl.max(b_start, axis=0)
        loss += tl.sum(b_loss, axis=0)
        i += BW
    tl.store(starts + pid, start)
