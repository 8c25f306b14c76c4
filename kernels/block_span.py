"""Which tokens and which blocks of tokens each query sees."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["window", "M", "Sq", "Sk"])
def block_span_kernel(lengths, first, end, blocks, window, M, Sq, Sk, BM: tl.constexpr):
    """first and end of tokens, and blocks, of BM queries of one batch."""
    pid = tl.program_id(0).to(tl.int64)
    NM = (Sq + BM - 1) // BM
    i_b = pid // NM
    o_m = (pid % NM).to(tl.int32) * BM + tl.arange(0, BM)
    stop = Sk
    if lengths is not None:
        stop = tl.minimum(stop, tl.load(lengths + i_b).to(tl.int32))
    b_own = tl.maximum(o_m + stop - Sq, -1)
    p_m, m_m = i_b * Sq + o_m, o_m < Sq
    if first is not None:
        tl.store(first + p_m, tl.maximum(b_own - window + 1, 0), mask=m_m)
    if end is not None:
        tl.store(end + p_m, b_own + 1, mask=m_m)
    if blocks is not None:
        tl.store(blocks + p_m, tl.maximum(b_own, 0) // M, mask=m_m)
