"""Sum of the log decay inside each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows


@triton.jit(do_not_specialize=["T", "NT", "HV"])
def chunk_local_cumsum_kernel(x, y, cu_seqlens, chunk_table, T, NT, HV, C: tl.constexpr, BH: tl.constexpr):
    """y = inclusive sum over the chunk of max(x log2 e, -126), for BH heads of one chunk."""
    n_hb = tl.cdiv(HV, BH)
    pid = tl.program_id(0).to(tl.int64)
    i_n, bos, length, o_t = chunk_rows(pid // n_hb, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    o_c = o_t + tl.arange(0, C)
    o_h = (pid % n_hb) * BH + tl.arange(0, BH)
    m = (o_c < length)[:, None] & (o_h < HV)[None, :]
    p = (bos + o_c)[:, None] * HV + o_h[None, :]
    b_x = tl.load(x + p, mask=m, other=0.0).to(tl.float32)
    b_y = tl.cumsum(tl.maximum(b_x * 1.4426950408889634, -126.0), axis=0)
    tl.store(y + p, b_y, mask=m)
