"""Sums over the rows of one number per row and head."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["N", "rows", "HV"])
def head_sums_kernel(
    terms, parts, cu_seqlens, N, rows, HV, P: tl.constexpr, BT: tl.constexpr, BH: tl.constexpr
):  # fmt: skip
    """One program's share of the sums of terms [rows, HV] over the rows: every P-th block of BT rows, for BH heads.

    parts [P, HV]. Rows past the last sequence are left out, whatever they hold.
    """
    n_hb = tl.cdiv(HV, BH)
    pid = tl.program_id(0).to(tl.int64)
    i_p = pid // n_hb
    o_h = (pid % n_hb) * BH + tl.arange(0, BH)
    m_h = o_h < HV
    if cu_seqlens is None:
        end = rows.to(tl.int64)
    else:
        end = tl.load(cu_seqlens + N).to(tl.int64)
    b_sum = tl.zeros([BT, BH], tl.float32)
    for i_t in range(i_p * BT, end, P * BT):
        o_t = i_t + tl.arange(0, BT)
        b_sum += tl.load(terms + o_t[:, None] * HV + o_h[None, :], mask=(o_t < end)[:, None] & m_h[None, :], other=0.0)
    tl.store(parts + i_p * HV + o_h, tl.sum(b_sum, axis=0), mask=m_h)


@triton.jit(do_not_specialize=["HV"])
def add_parts_kernel(parts, total, HV, P: tl.constexpr, BH: tl.constexpr):
    """total [HV] = the sum of parts [P, HV] for BH heads, in one fixed order."""
    o_h = tl.program_id(0).to(tl.int64) * BH + tl.arange(0, BH)
    m_h = o_h < HV
    b_parts = tl.load(parts + tl.arange(0, P)[:, None] * HV + o_h[None, :], mask=m_h[None, :], other=0.0)
    tl.store(total + o_h, tl.sum(b_parts, axis=0), mask=m_h)
