"""Which keys each query sees."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["window", "prefix_lm", "after", "Sq", "Sk"])
def key_span_kernel(
    lengths, first, end, own, window, prefix_lm, after, Sq, Sk, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    BM: tl.constexpr,
):  # fmt: skip
    """first, end and own of BM queries of one batch."""
    pid = tl.program_id(0).to(tl.int64)
    NM = (Sq + BM - 1) // BM
    i_b = pid // NM
    o_m = (pid % NM).to(tl.int32) * BM + tl.arange(0, BM)
    b_start = tl.zeros([BM], dtype=tl.int32)
    b_stop = b_start + Sk
    if lengths is not None:
        b_stop = tl.minimum(b_stop, tl.load(lengths + i_b).to(tl.int32))
    b_own = o_m + b_stop - after - Sq
    store_spans(
        first, end, own, i_b * Sq + o_m, o_m < Sq, b_own, b_start, b_stop, window, prefix_lm, CAUSAL, WINDOW
    )  # fmt: skip


@triton.jit
def store_spans(
    first, end, own, p_m, m_m, b_own, b_start, b_stop, window, prefix_lm, CAUSAL: tl.constexpr, WINDOW: tl.constexpr
):
    """Of queries at the keys b_own, whose sequences have the keys from b_start to before b_stop."""
    b_first, b_end = b_start, b_stop
    if CAUSAL:
        b_end = tl.maximum(b_own + 1, b_start + prefix_lm)
    if WINDOW:
        b_first = b_own - window + 1
    if first is not None:
        tl.store(first + p_m, tl.minimum(tl.maximum(b_first, b_start), b_stop), mask=m_m)
    if end is not None:
        tl.store(end + p_m, tl.minimum(tl.maximum(b_end, b_start), b_stop), mask=m_m)
    if own is not None:
        tl.store(own + p_m, b_own, mask=m_m)


@triton.jit
def sequence_of(ends, o, N, BM: tl.constexpr):
    """The sequence of each row o: how many of the N end at or before it."""
    b_n = tl.zeros([BM], dtype=tl.int32)
    for n in range(N):
        b_n += (tl.load(ends + n).to(tl.int32) <= o).to(tl.int32)
    return b_n


@triton.jit(do_not_specialize=["window", "prefix_lm", "before", "Sq", "Sk", "N"])
def document_span_kernel(
    q_ends, k_ends, first, end, own, sequence, start, window, prefix_lm, before, Sq, Sk, N, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """What there is to know of BM queries of one batch, whose N sequences end at q_ends and k_ends."""
    pid = tl.program_id(0).to(tl.int64)
    NM = (Sq + BM - 1) // BM
    o_m = (pid % NM).to(tl.int32) * BM + tl.arange(0, BM)
    b_n = sequence_of(q_ends, o_m + before, N, BM)
    m_n = b_n < N
    b_q_end = tl.load(q_ends + b_n, mask=m_n, other=0).to(tl.int32)
    b_k_end = tl.load(k_ends + b_n, mask=m_n, other=0).to(tl.int32)
    b_start = tl.load(k_ends + b_n - 1, mask=m_n & (b_n > 0), other=0).to(tl.int32)
    b_start = tl.where(m_n, tl.minimum(b_start, Sk), Sk)
    b_stop = tl.where(m_n, tl.minimum(b_k_end, Sk), Sk)
    p_m = pid // NM * Sq + o_m
    b_own = o_m + before + b_k_end - b_q_end
    if sequence is not None:
        tl.store(sequence + p_m, (pid // NM).to(tl.int32) * N + b_n, mask=o_m < Sq)
    if start is not None:
        tl.store(start + p_m, b_start, mask=o_m < Sq)
    store_spans(first, end, own, p_m, o_m < Sq, b_own, b_start, b_stop, window, prefix_lm, CAUSAL, WINDOW)
