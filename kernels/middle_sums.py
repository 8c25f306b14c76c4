"""Sums over the middle axis of a tensor [before, length, after], in float32 and in one fixed order."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["length", "after"])
def middle_sums_kernel(x, parts, length, after, P: tl.constexpr, BT: tl.constexpr, BH: tl.constexpr):
    """parts [before, P, after]: one program's share, every P-th block of BT places, for BH columns."""
    n_h = tl.cdiv(after, BH)
    pid = tl.program_id(0).to(tl.int64)
    o_h = (pid % n_h) * BH + tl.arange(0, BH)
    i_p = pid // n_h % P
    i_b = pid // n_h // P
    m_h = o_h < after
    b_sum = tl.zeros([BT, BH], tl.float32)
    for i_t in range(i_p * BT, length.to(tl.int64), P * BT):
        o_t = i_t + tl.arange(0, BT)
        p = (i_b * length + o_t[:, None]) * after + o_h[None, :]
        b_sum += tl.load(x + p, mask=(o_t < length)[:, None] & m_h[None, :], other=0.0).to(tl.float32)
    tl.store(parts + (i_b * P + i_p) * after + o_h, tl.sum(b_sum, axis=0), mask=m_h)


@triton.jit(do_not_specialize=["after"])
def add_middle_parts_kernel(parts, total, after, P: tl.constexpr, BH: tl.constexpr):
    """total [before, after]: the P parts of BH columns, added in one fixed order."""
    n_h = tl.cdiv(after, BH)
    pid = tl.program_id(0).to(tl.int64)
    o_h = (pid % n_h) * BH + tl.arange(0, BH)
    i_b = pid // n_h
    m_h = o_h < after
    p = (i_b * P + tl.arange(0, P)[:, None]) * after + o_h[None, :]
    tl.store(total + i_b * after + o_h, tl.sum(tl.load(parts + p, mask=m_h[None, :], other=0.0), axis=0), mask=m_h)
