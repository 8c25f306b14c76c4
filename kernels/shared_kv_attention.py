"""All heads of a query over entries of its own and the tokens around it, each of which is key and value at once."""

import triton
import triton.language as tl

from ._attention import settled, with_sink
from .flash_decode import attend_rows


@triton.jit(do_not_specialize=["scale", "Sq", "NB", "Sk", "TOP", "HQ"])
def shared_kv_attention_kernel(
    q, c, places, count, kv, first, end, sinks, o, lse, scale, Sq, NB, Sk, TOP, HQ, D: tl.constexpr, BD: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o [B, Sq, HQ, D] and lse [B, Sq, HQ] of BM heads of one query. c [B, Sq, TOP, D], or [B, NB, D] with the query's
    places; kv [B, Sk, D]."""
    LOG2E: tl.constexpr = 1.4426950408889634
    pid = tl.program_id(0).to(tl.int64)
    NM = (HQ + BM - 1) // BM
    i_q, o_h = pid // NM, (pid % NM).to(tl.int32) * BM + tl.arange(0, BM)
    m_h, o_d = o_h < HQ, tl.arange(0, BD)
    p_q = i_q * HQ + o_h
    p_qd, m_qd = p_q[:, None] * D + o_d[None, :], m_h[:, None] & (o_d < D)[None, :]
    b_q = tl.load(q + p_qd, mask=m_qd, other=0.0)
    b_o = tl.zeros([BM, BD], dtype=tl.float32)
    b_l = tl.zeros([BM], dtype=tl.float32)
    b_m = tl.full([BM], float("-inf"), dtype=tl.float32)
    if places is None:
        row = i_q * TOP
    else:
        row = i_q // Sq * NB
    b_first = tl.zeros([BM], dtype=tl.int32)
    n_chosen = tl.load(count + i_q)
    b_end = b_first + n_chosen
    for n in range(0, n_chosen, BN):
        b_o, b_l, b_m = attend_rows(
            b_o, b_l, b_m, b_q, b_q, b_first, b_end, b_first, 0.0, c, None, None, None, None, places, i_q * TOP, row, 0,
            n, 0, scale, 0.0, TOP, 1, 0, 1, D, 0, D, BD, 16, BD, BN, False, False, True, True, True, False, PRECISION,
        )  # fmt: skip
    n_first, n_end = tl.load(first + i_q), tl.load(end + i_q)
    b_first, b_end = b_first + n_first, b_first + n_end
    row = i_q // Sq * Sk
    for n in range(n_first // BN * BN, n_end, BN):
        b_o, b_l, b_m = attend_rows(
            b_o, b_l, b_m, b_q, b_q, b_first, b_end, b_first, 0.0, kv, None, None, None, None, None, 0, row, 0, n,
            n_first, scale, 0.0, Sk, 1, 0, 1, D, 0, D, BD, 16, BD, BN, False, False, True, True, True, False, PRECISION,
        )  # fmt: skip
    if sinks is not None:
        b_o, b_l, b_m = with_sink(b_o, b_l, b_m, tl.load(sinks + o_h, mask=m_h, other=0.0) * LOG2E)
    b_o, b_lse = settled(b_o, b_l, b_m)
    tl.store(o + p_qd, b_o.to(o.dtype.element_ty), mask=m_qd)
    if lse is not None:
        tl.store(lse + p_q, b_lse, mask=m_h)
