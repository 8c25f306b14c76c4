"""Which keys each query sees."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["window", "prefix_lm", "Sq", "Sk"])
def key_span_kernel(
    first, end, own, window, prefix_lm, Sq, Sk, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BM: tl.constexpr
):
    """first, end and own of BM queries of one batch."""
    pid = tl.program_id(0).to(tl.int64)
    NM = (Sq + BM - 1) // BM
    o_m = (pid % NM).to(tl.int32) * BM + tl.arange(0, BM)
    p_m = pid // NM * Sq + o_m
    m_m = o_m < Sq
    b_own = o_m + (Sk - Sq)
    b_first = tl.zeros([BM], dtype=tl.int32)
    b_end = b_first + Sk
    if CAUSAL:
        b_end = tl.maximum(b_own + 1, prefix_lm)
    if WINDOW:
        b_first = b_own - window + 1
    store_spans(first, end, own, p_m, m_m, b_first, b_end, b_own, Sk)


@triton.jit
def store_spans(first, end, own, p_m, m_m, b_first, b_end, b_own, Sk):
    """Within the Sk keys that there are; own as it is, and not where nobody asks for it."""
    if first is not None:
        tl.store(first + p_m, tl.minimum(tl.maximum(b_first, 0), Sk), mask=m_m)
    if end is not None:
        tl.store(end + p_m, tl.minimum(tl.maximum(b_end, 0), Sk), mask=m_m)
    if own is not None:
        tl.store(own + p_m, b_own, mask=m_m)
