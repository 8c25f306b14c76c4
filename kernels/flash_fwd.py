"""Attention of a tile of queries over all keys that they see, with a running maximum (online softmax)."""

import triton
import triton.language as tl

from ._attention import between, in_log2, not_finite, rows_of, seen_by, settled, tile_and_head, with_sink, without_nan
from ._dropout import head_words, kept, places, query_words


@triton.jit
def attend(
    b_o, b_l, b_m, b_q, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, n, border, scale, softcap,
    threshold, Sk, H, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr, BN: tl.constexpr,
    CAPPED: tl.constexpr, SLOPED: tl.constexpr, DROPPED: tl.constexpr, RISING: tl.constexpr, WHOLE: tl.constexpr,
    CLEARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys: (sum of weights times values, sum of weights, largest score) of each query. border: some query
    does not see some key. RISING: scores rise with the products, scale is positive. CLEARED: values that are not
    finite meet no query that does not see them."""
    LOG2E: tl.constexpr = 1.4426950408889634
    o_i = tl.arange(0, BN)
    o_n = n + o_i
    m_n = o_n < Sk
    row = tl.cast(n, tl.int64) * H
    b_k = rows_of(k + (p_k + row * D), o_i, H * D, m_n, D, BD, WHOLE)
    b_s = tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION)
    b_v = rows_of(v + (p_v + row * DV), o_i, H * DV, m_n, DV, BV, WHOLE)
    factor = scale * LOG2E
    if not RISING or CAPPED or SLOPED:
        b_s, _ = in_log2(b_s, scale, softcap, CAPPED)
        factor = 1.0
    if SLOPED:
        b_s += b_slope * (o_n[None, :] - b_own[:, None]).to(tl.float32)
    if CLEARED:
        b_v, b_nan = without_nan(b_v)
        b_s += b_nan[None, :]
    if border:
        b_keep = between(o_i[None, :], (b_first - n)[:, None], (b_end - n)[:, None])
        b_s = tl.where(b_keep, b_s, float("-inf"))
    # the factor goes into the one multiplication and addition before exp2
    b_new = tl.maximum(b_m, tl.max(b_s, axis=1) * factor)
    b_base = tl.where(b_new == float("-inf"), 0.0, b_new)
    b_p = tl.exp2(b_s * factor - b_base[:, None])
    b_shrink = tl.exp2(b_m - b_base)
    b_l = b_l * b_shrink + tl.sum(b_p, axis=1)
    if DROPPED:
        b_p = tl.where(kept(b_r[:, None], b_c[:, None], o_n[None, :] - b_start[:, None], threshold), b_p, 0.0)
    b_o = tl.dot(b_p.to(b_v.dtype), b_v, b_o * b_shrink[:, None], input_precision=PRECISION)
    return b_o, b_l, b_new


@triton.jit
def attend_all(
    b_q, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, low, high, whole, whole_stop, scale,
    softcap, threshold, Sk, H, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, SLOPED: tl.constexpr, DROPPED: tl.constexpr,
    RISING: tl.constexpr, ONE_LOOP: tl.constexpr, CLEARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The same of all tiles from low to high. ONE_LOOP: in this order, with a branch for those at a border; else those
    at a border come first."""
    b_o = tl.zeros([BM, BV], dtype=tl.float32)
    b_l = tl.zeros([BM], dtype=tl.float32)
    b_m = tl.full([BM], float("-inf"), dtype=tl.float32)
    if ONE_LOOP:
        full = Sk // BN * BN
        for n in range(low, tl.minimum(high, full), BN):
            border = (n < whole) | (n >= whole_stop)
            b_o, b_l, b_m = attend(
                b_o, b_l, b_m, b_q, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, n, border, scale,
                softcap, threshold, Sk, H, D, DV, BD, BV, BN, CAPPED, SLOPED, DROPPED, RISING, True, CLEARED,
                PRECISION,
            )  # fmt: skip
        if high > full:
            b_o, b_l, b_m = attend(
                b_o, b_l, b_m, b_q, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, full, True,
                scale, softcap, threshold, Sk, H, D, DV, BD, BV, BN, CAPPED, SLOPED, DROPPED, RISING, False, CLEARED,
                PRECISION,
            )  # fmt: skip
    else:
        for at in range(low, high - (whole_stop - whole), BN):
            n = at + tl.where(at >= whole, whole_stop - whole, 0)
            b_o, b_l, b_m = attend(
                b_o, b_l, b_m, b_q, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, n, True, scale,
                softcap, threshold, Sk, H, D, DV, BD, BV, BN, CAPPED, SLOPED, DROPPED, RISING, False, CLEARED,
                PRECISION,
            )  # fmt: skip
        for at in range(0, whole_stop - whole, BN):
            n = whole + at
            b_o, b_l, b_m = attend(
                b_o, b_l, b_m, b_q, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, n, False, scale,
                softcap, threshold, Sk, H, D, DV, BD, BV, BN, CAPPED, SLOPED, DROPPED, RISING, True, False,
                PRECISION,
            )  # fmt: skip
    return b_o, b_l, b_m


@triton.jit(
    do_not_specialize=[
        "scale", "softcap", "Sq", "Sk", "H", "HQ", "seed_low", "seed_high", "threshold", "first_batch", "kept_scale",
    ]
)  # fmt: skip
def flash_fwd_kernel(
    q, k, v, first, end, own, sinks, slopes, sequence, start, o, lse, scale, softcap, Sq, Sk, H, HQ, seed_low,
    seed_high, threshold, first_batch, kept_scale, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr,
    BV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, DROPPED: tl.constexpr,
    RISING: tl.constexpr, ONE_LOOP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o and lse of BM queries of one head; of causal ones the last, which see most, go first."""
    LOG2E: tl.constexpr = 1.4426950408889634
    SLOPED: tl.constexpr = slopes is not None
    pid = tl.program_id(0).to(tl.int64)
    NM = (Sq + BM - 1) // BM
    tile, i_bh = tile_and_head(pid, NM)
    o_m = (NM - 1 - tile).to(tl.int32) * BM + tl.arange(0, BM)
    i_h, i_b = i_bh % HQ, i_bh // HQ
    p_k = (i_b * Sk * H + i_h // (HQ // H)) * D
    p_v = (i_b * Sk * H + i_h // (HQ // H)) * DV
    o_d, o_v = tl.arange(0, BD), tl.arange(0, BV)
    m_m = o_m < Sq
    p_m = (i_b * Sq + o_m) * HQ + i_h
    b_q = tl.load(q + p_m[:, None] * D + o_d[None, :], mask=m_m[:, None] & (o_d < D)[None, :], other=0.0)
    b_first, b_end, low, high, whole, whole_stop = seen_by(first, end, i_b * Sq, o_m, Sq, BN)
    b_own, b_slope, b_r, b_c, b_start = o_m, 0.0, o_m, o_m, o_m
    if SLOPED:
        b_own = tl.load(own + i_b * Sq + o_m, mask=m_m, other=0)
        b_slope = tl.load(slopes + i_h) * LOG2E
    if DROPPED:
        b_batch, b_row, b_start = places(sequence, start, own, i_b, i_b * Sq + o_m, m_m, first_batch)
        w_0, w_1 = head_words(seed_low, seed_high, i_h)
        b_r, b_c = query_words(w_0, w_1, b_batch, b_row)

    b_o, b_l, b_m = attend_all(
        b_q, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, low, high, whole, whole_stop, scale,
        softcap, threshold, Sk, H, D, DV, BD, BV, BM, BN, CAPPED, SLOPED, DROPPED, RISING, ONE_LOOP,
        not ONE_LOOP, PRECISION,
    )  # fmt: skip
    if ONE_LOOP:
        if not_finite(b_o):
            # a value of a border tile may have met queries that do not see it
            b_o, b_l, b_m = attend_all(
                b_q, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, low, high, whole, whole_stop,
                scale, softcap, threshold, Sk, H, D, DV, BD, BV, BM, BN, CAPPED, SLOPED, DROPPED, RISING, ONE_LOOP,
                True, PRECISION,
            )  # fmt: skip
    if DROPPED:
        b_o *= kept_scale
    if sinks is not None:
        b_o, b_l, b_m = with_sink(b_o, b_l, b_m, tl.load(sinks + i_h) * LOG2E)
    b_o, b_lse = settled(b_o, b_l, b_m)
    tl.store(o + p_m[:, None] * DV + o_v[None, :], b_o.to(o.dtype.element_ty), mask=m_m[:, None] & (o_v < DV)[None, :])
    if lse is not None:
        tl.store(lse + p_m, b_lse, mask=m_m)
