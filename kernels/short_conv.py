"""Causal convolution of each channel over a few tokens, with a state, and its gradients.

Channels are the columns of a matrix [rows, D], D = H K. Sequences never see each other: a tap before a sequence's first
row reads the state, W rows [W, D] a sequence, the oldest first.
"""

import triton
import triton.language as tl


@triton.jit
def sequence_of(o_r, cu_seqlens, N, T, steps):
    """(sequence, place in it, length) of rows o_r; a row past the last sequence has a place past its length."""
    if cu_seqlens is None:
        i_n = o_r // T
        place = o_r - i_n * T
        length = o_r * 0 + T
    else:
        # the last sequence that begins at or before the row: an empty one before it begins there too
        i_n = (o_r * 0).to(tl.int64)
        high = i_n + N
        for _ in range(steps):
            middle = (i_n + high) // 2
            below = tl.load(cu_seqlens + middle) <= o_r
            i_n, high = tl.where(below, middle, i_n), tl.where(below, high, middle)
        start = tl.load(cu_seqlens + i_n).to(tl.int64)
        place = o_r - start
        length = tl.load(cu_seqlens + i_n + 1).to(tl.int64) - start
    return i_n, place, length


@triton.jit
def input_row(x, state, o_r, o_d, i_n, place, back, m, D, W: tl.constexpr):
    """x at ``back`` rows before rows o_r of their sequences; before the first, the state, or 0 without one."""
    inside = (place >= back)[:, None] & m
    b_x = tl.load(x + (o_r - back)[:, None] * D + o_d[None, :], mask=inside, other=0.0).to(tl.float32)
    if state is not None:
        p = (i_n * W + W + place - back)[:, None] * D + o_d[None, :]
        b_x += tl.load(state + p, mask=(place < back)[:, None] & m, other=0.0).to(tl.float32)
    return b_x


@triton.jit(do_not_specialize=["N", "T", "steps", "rows", "D"])
def short_conv_kernel(
    x, weight, bias, state, y, cu_seqlens, N, T, steps, rows, D,
    W: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """y = bias + sum over taps of weight x for BT rows of BD channels."""
    n_d = tl.cdiv(D, BD)
    pid = tl.program_id(0).to(tl.int64)
    o_r = (pid // n_d) * BT + tl.arange(0, BT)
    o_d = (pid % n_d) * BD + tl.arange(0, BD)
    i_n, place, length = sequence_of(tl.minimum(o_r, rows - 1), cu_seqlens, N, T, steps)
    m = ((o_r < rows) & (place < length))[:, None] & (o_d < D)[None, :]
    b_y = tl.zeros([BT, BD], tl.float32)
    for i in tl.static_range(W):
        b_w = tl.load(weight + o_d * W + i, mask=o_d < D, other=0.0)
        b_y += b_w[None, :] * input_row(x, state, o_r, o_d, i_n, place, W - 1 - i, m, D, W)
    if bias is not None:
        b_y += tl.load(bias + o_d, mask=o_d < D, other=0.0)[None, :]
    tl.store(y + o_r[:, None] * D + o_d[None, :], b_y, mask=m)


@triton.jit(do_not_specialize=["T", "D"])
def final_rows_kernel(x, state, final_state, cu_seqlens, T, D, W: tl.constexpr, BD: tl.constexpr):
    """The last W inputs of one sequence, for BD channels; a short sequence keeps the end of its state."""
    n_d = tl.cdiv(D, BD)
    pid = tl.program_id(0).to(tl.int64)
    i_n = pid // n_d
    o_d = (pid % n_d) * BD + tl.arange(0, BD)
    start, length = sequence_bounds(i_n, cu_seqlens, T)
    for i in tl.static_range(W):
        row = length - W + i
        m = o_d < D
        b_x = tl.load(x + (start + row) * D + o_d, mask=m & (row >= 0), other=0.0).to(tl.float32)
        if state is not None:
            b_x += tl.load(state + (i_n * W + W + row) * D + o_d, mask=m & (row < 0), other=0.0).to(tl.float32)
        tl.store(final_state + (i_n * W + i) * D + o_d, b_x, mask=m)


@triton.jit
def sequence_bounds(i_n, cu_seqlens, T):
    """(first row, length) of sequence i_n."""
    if cu_seqlens is None:
        start = i_n * T
        length = i_n * 0 + T
    else:
        start = tl.load(cu_seqlens + i_n).to(tl.int64)
        length = tl.load(cu_seqlens + i_n + 1).to(tl.int64) - start
    return start, length


@triton.jit(do_not_specialize=["N", "T", "steps", "rows", "D"])
def short_conv_dx_kernel(
    d_y, d_final_state, weight, d_x, cu_seqlens, N, T, steps, rows, D,
    W: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """d_x = sum over taps of weight times d_y of the row that read it, and what the final state kept of it."""
    n_d = tl.cdiv(D, BD)
    pid = tl.program_id(0).to(tl.int64)
    o_r = (pid // n_d) * BT + tl.arange(0, BT)
    o_d = (pid % n_d) * BD + tl.arange(0, BD)
    i_n, place, length = sequence_of(tl.minimum(o_r, rows - 1), cu_seqlens, N, T, steps)
    m = ((o_r < rows) & (place < length))[:, None] & (o_d < D)[None, :]
    b_dx = tl.zeros([BT, BD], tl.float32)
    if d_y is not None:
        for i in tl.static_range(W):
            ahead = W - 1 - i
            b_w = tl.load(weight + o_d * W + i, mask=o_d < D, other=0.0)
            p = (o_r + ahead)[:, None] * D + o_d[None, :]
            b_dx += b_w[None, :] * tl.load(
                d_y + p, mask=(place + ahead < length)[:, None] & m, other=0.0
            ).to(tl.float32)  # fmt: skip
    if d_final_state is not None:
        kept = place - length + W
        p = (i_n * W + kept)[:, None] * D + o_d[None, :]
        b_dx += tl.load(d_final_state + p, mask=(kept >= 0)[:, None] & m, other=0.0).to(tl.float32)
    tl.store(d_x + o_r[:, None] * D + o_d[None, :], b_dx, mask=m)


@triton.jit(do_not_specialize=["T", "D"])
def short_conv_dstate_kernel(
    d_y, d_final_state, weight, d_state, cu_seqlens, T, D, W: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    """The gradient of one sequence's state: row j is read by rows 0 .. j - 1, and kept by a final state."""
    n_d = tl.cdiv(D, BD)
    pid = tl.program_id(0).to(tl.int64)
    i_n = pid // n_d
    o_d = (pid % n_d) * BD + tl.arange(0, BD)
    m = o_d < D
    start, length = sequence_bounds(i_n, cu_seqlens, T)
    for j in tl.static_range(W):
        b_ds = tl.zeros([BD], tl.float32)
        if d_y is not None:
            for t in tl.static_range(j):
                b_w = tl.load(weight + o_d * W + (j - 1 - t), mask=m, other=0.0)
                b_ds += b_w * tl.load(d_y + (start + t) * D + o_d, mask=m & (t < length), other=0.0).to(tl.float32)
        if d_final_state is not None:
            p = (i_n * W + j - length) * D + o_d
            b_ds += tl.load(d_final_state + p, mask=m & (j >= length), other=0.0).to(tl.float32)
        tl.store(d_state + (i_n * W + j) * D + o_d, b_ds, mask=m)


@triton.jit(do_not_specialize=["N", "T", "steps", "rows", "D"])
def short_conv_sums_kernel(
    d_y, x, state, sum_weight, sum_bias, cu_seqlens, N, T, steps, rows, D,
    P: tl.constexpr, W: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """One program's share of the gradients of weight and bias: every P-th block of BT rows, for BD channels.

    sum_weight [P, D, W], sum_bias [P, D]. Rows past the last sequence are left out. d_y None: all zeros.
    """
    n_d = tl.cdiv(D, BD)
    pid = tl.program_id(0).to(tl.int64)
    i_p = pid // n_d
    o_d = (pid % n_d) * BD + tl.arange(0, BD)
    m_d = o_d < D
    b_db = tl.zeros([BD], tl.float32)
    b_dw0, b_dw1, b_dw2, b_dw3 = b_db, b_db, b_db, b_db
    if d_y is not None:
        for i_t in range(i_p * BT, rows.to(tl.int64), P * BT):
            o_r = i_t + tl.arange(0, BT)
            i_n, place, length = sequence_of(tl.minimum(o_r, rows - 1), cu_seqlens, N, T, steps)
            m = ((o_r < rows) & (place < length))[:, None] & m_d[None, :]
            b_dy = tl.load(d_y + o_r[:, None] * D + o_d[None, :], mask=m, other=0.0).to(tl.float32)
            b_db += tl.sum(b_dy, axis=0)
            if sum_weight is not None:
                b_dw0 += tl.sum(b_dy * input_row(x, state, o_r, o_d, i_n, place, W - 1, m, D, W), axis=0)
                b_dw1 += tl.sum(b_dy * input_row(x, state, o_r, o_d, i_n, place, W - 2, m, D, W), axis=0)
                if W > 2:
                    b_dw2 += tl.sum(b_dy * input_row(x, state, o_r, o_d, i_n, place, W - 3, m, D, W), axis=0)
                if W > 3:
                    b_dw3 += tl.sum(b_dy * input_row(x, state, o_r, o_d, i_n, place, W - 4, m, D, W), axis=0)
    if sum_bias is not None:
        tl.store(sum_bias + i_p * D + o_d, b_db, mask=m_d)
    if sum_weight is not None:
        p = sum_weight + (i_p * D + o_d) * W
        tl.store(p, b_dw0, mask=m_d)
        tl.store(p + 1, b_dw1, mask=m_d)
        if W > 2:
            tl.store(p + 2, b_dw2, mask=m_d)
        if W > 3:
            tl.store(p + 3, b_dw3, mask=m_d)
