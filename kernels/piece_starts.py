"""From which chunk a piece of a sequence can be scanned with nothing entering."""

import triton
import triton.language as tl


@triton.jit
def sum_of_pairs(b_x, b_y):
    return b_x + b_y


@triton.jit
def chunk_gates(g, i_n, i_h, o_t, T, HV, C: tl.constexpr):
    """g at the last row of the chunks o_t; 0 where there is no such chunk."""
    o_last = tl.minimum((o_t + 1) * C, T) - 1
    return tl.load(g + (i_n * T + o_last) * HV + i_h, mask=(o_t >= 0) & (o_t * C < T), other=0.0)


@triton.jit
def chunk_growths(
    k, beta, i_n, i_h, i_t, T, H, HV, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BW: tl.constexpr
):  # fmt: skip
    """The sums of log2 max(1, |1 - beta |k|^2|) over the rows of BW chunks from i_t on; 0 where there are no rows."""
    o_r = i_t * C + tl.arange(0, BW * C)
    o_k = tl.arange(0, BK)
    m_r = (o_r >= 0) & (o_r < T)
    row = i_n * T + o_r
    p_k = k + ((row * H + i_h // (HV // H)) * K)[:, None] + o_k[None, :]
    b_k = tl.load(p_k, mask=m_r[:, None] & (o_k < K)[None, :], other=0.0).to(tl.float32)
    b_beta = tl.load(beta + row * HV + i_h, mask=m_r, other=0.0).to(tl.float32)
    b_norm = tl.abs(1.0 - b_beta * tl.sum(b_k * b_k, axis=1))
    # not tl.maximum, which would make 1 of a nan
    return tl.sum(tl.reshape(tl.log2(tl.where(b_norm <= 1.0, 1.0, b_norm)), (BW, C)), axis=1)


@triton.jit(do_not_specialize=["T", "H", "HV", "pieces"])
def piece_starts_kernel(
    k, beta, g, starts, T, H, HV, pieces,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BW: tl.constexpr, WINDOW: tl.constexpr,
    FORGOTTEN: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """starts = the last chunk from which on all that came before it is multiplied by 2^FORGOTTEN or less before the
    piece begins, where it is one of the WINDOW before the piece; the sequence's first chunk if that is; else -1. In
    reverse the chunk after the first one up to which that holds, behind the piece's end.

    What a chunk multiplies by is at most 2^(g_C + sum over its rows of log2 max(1, |1 - beta |k|^2|)). One program goes
    from one piece of one sequence's head, BW chunks at a time.
    """
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % HV
    i_p = (pid // HV % pieces).to(tl.int32)
    i_n = pid // HV // pieces
    NT = tl.cdiv(T, C)
    o_w = tl.arange(0, WINDOW)
    o_b = tl.arange(0, BW)
    edge = (i_p + 1) * NT // pieces if REVERSE else i_p * NT // pieces
    left = NT - edge if REVERSE else edge
    b_least = tl.sum(chunk_gates(g, i_n, i_h, edge + o_w if REVERSE else edge - 1 - o_w, T, HV, C), axis=0)
    start = tl.where(left == 0, edge, -1)
    # keys add to the loss: where the gates alone are too weak, none are read
    i = tl.where((b_least <= FORGOTTEN) | (left <= WINDOW), 0, WINDOW)
    loss = 0.0
    while (i < WINDOW) & (start < 0):
        i_t = edge + i if REVERSE else edge - i - BW
        b_loss = chunk_growths(k, beta, i_n, i_h, i_t, T, H, HV, K, C, BK, BW)
        b_loss += chunk_gates(g, i_n, i_h, i_t + o_b, T, HV, C)
        b_left = loss + tl.associative_scan(b_loss, 0, sum_of_pairs, reverse=not REVERSE)
        o_start = i_t + o_b + 1 if REVERSE else i_t + o_b
        m_start = ((b_left <= FORGOTTEN) & (o_start >= 0) & (o_start <= NT)) | (o_start == (NT if REVERSE else 0))
        if REVERSE:
            start = tl.min(tl.where(m_start, o_start, NT + 1), axis=0)
            start = tl.where(start > NT, -1, start)
        else:
            start = tl.max(tl.where(m_start, o_start, -1), axis=0)
        loss += tl.sum(b_loss, axis=0)
        i += BW
    tl.store(starts + pid, start)
