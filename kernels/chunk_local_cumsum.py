"""Sum of the log decay inside each chunk, and its gradient: the sum from each row to the chunk's end."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def chunk_local_cumsum_kernel(
    x, y, cu_seqlens, chunk_table, T, NT, HV, K: tl.constexpr, C: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """y = inclusive sum over the chunk of max(x log2 e, -126), for BN of one chunk's HV K columns."""
    columns = HV * K
    n_b = tl.cdiv(columns, BN)
    pid = tl.program_id(0).to(tl.int64)
    i_n, bos, length, o_t = chunk_rows(pid // n_b, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    o_c = o_t + tl.arange(0, C)
    o_n = (pid % n_b) * BN + tl.arange(0, BN)
    m = (o_c < length)[:, None] & (o_n < columns)[None, :]
    p = (bos + o_c)[:, None] * columns + o_n[None, :]
    b_x = tl.load(x + p, mask=m, other=0.0).to(tl.float32)
    b_x *= 1.4426950408889634
    # not tl.maximum, which would make -126 of a nan
    b_y = tl.cumsum(tl.where(b_x < -126.0, -126.0, b_x), axis=0)
    tl.store(y + p, b_y, mask=m)


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def chunk_local_cumsum_vjp_kernel(
    d_y, x, d_x, cu_seqlens, chunk_table, T, NT, HV, K: tl.constexpr, C: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """d_x = log2 e * sum of d_y from this row to the chunk's end, 0 where the forward pass clamped."""
    columns = HV * K
    n_b = tl.cdiv(columns, BN)
    pid = tl.program_id(0).to(tl.int64)
    i_n, bos, length, o_t = chunk_rows(pid // n_b, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    # from the last row up: a forward scan takes fewer steps than a reverse one
    o_c = o_t + C - 1 - tl.arange(0, C)
    o_n = (pid % n_b) * BN + tl.arange(0, BN)
    m = (o_c < length)[:, None] & (o_n < columns)[None, :]
    p = (bos + o_c)[:, None] * columns + o_n[None, :]
    b_x = tl.load(x + p, mask=m, other=0.0).to(tl.float32)
    b_dy = tl.load(d_y + p, mask=m, other=0.0).to(tl.float32)
    b_sum = tl.cumsum(b_dy, axis=0)
    tl.store(d_x + p, tl.where(b_x * 1.4426950408889634 < -126.0, 0.0, b_sum * 1.4426950408889634), mask=m)
