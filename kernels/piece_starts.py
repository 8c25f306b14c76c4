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
    start = tl.where(begin == 0, 0, -1)
    o_w = tl.arange(0, BW)
    o_r = tl.arange(0, BW * C)
    o_k = tl.arange(0, BK)
    loss = 0.0
    for i in range(BW, WINDOW + BW, BW):
        # of chunks before the sequence there are no rows, and of none once the start is found
        i_t = begin - i
        row = i_n * T + i_t * C
        m_w = (i_t + o_w >= 0) & (start < 0)
        m_r = (i_t * C + o_r >= 0) & (start < 0)
        b_k = tl.load(
            k + (row * H + i_h // (HV // H)) * K + o_r[:, None] * (H * K) + o_k[None, :],
            mask=m_r[:, None] & (o_k < K)[None, :], other=0.0,
        ).to(tl.float32)  # fmt: skip
        b_beta = tl.load(beta + row * HV + i_h + o_r * HV, mask=m_r, other=0.0).to(tl.float32)
        b_norm = tl.abs(1.0 - b_beta * tl.sum(b_k * b_k, axis=1))
        # not tl.maximum, which would make 1 of a nan
        b_grown = tl.log2(tl.where(b_norm <= 1.0, 1.0, b_norm))
        b_loss = tl.sum(tl.reshape(b_grown, (BW, C)), axis=1)
        b_loss += tl.load(g + (row + C - 1) * HV + i_h + o_w * (C * HV), mask=m_w, other=0.0)
        b_left = loss + tl.associative_scan(b_loss, 0, sum_of_pairs, reverse=True)
        b_start = tl.where(m_w & ((b_left <= FORGOTTEN) | (i_t + o_w == 0)), i_t + o_w, -1)
        start = tl.maximum(start, tl.max(b_start, axis=0))
        loss += tl.sum(b_loss, axis=0)
    tl.store(starts + pid, start)
