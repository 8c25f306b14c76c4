"""Gradients of attention, from its output and log-sum-exp: what it sums over is made again, tile by tile.

p = exp(s - lse)    dv = p^T do    ds = p (do v^T - delta)    dq = ds k    dk = ds^T q

With dropout p of dv, and do v^T, are 0 where a weight is dropped, and count kept_scale where it is kept.
"""

import triton
import triton.language as tl

from ._attention import between, in_log2, not_finite, rows_of, seen_by, seen_from, tile_and_head, without_nan
from ._dropout import head_words, kept, places, query_words


@triton.jit(do_not_specialize=["rows", "HQ"])
def flash_bwd_preprocess_kernel(
    d_o, d_lse, o, lse, sinks, delta, terms, rows, HQ, DV: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr
):
    """delta = <o, do> - d_lse for BR rows [B, Sq, HQ]; terms = -exp(sink - lse) delta, the sink's share of each, 0
    without sinks."""
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    m_r = o_r < rows
    b_delta = tl.zeros([BR], dtype=tl.float32)
    if d_o is not None:
        o_v = tl.arange(0, BV)
        m_rv = m_r[:, None] & (o_v < DV)[None, :]
        b_o = tl.load(o + o_r[:, None] * DV + o_v[None, :], mask=m_rv, other=0.0).to(tl.float32)
        b_do = tl.load(d_o + o_r[:, None] * DV + o_v[None, :], mask=m_rv, other=0.0).to(tl.float32)
        b_delta += tl.sum(b_o * b_do, axis=1)
    if d_lse is not None:
        b_delta -= tl.load(d_lse + o_r, mask=m_r, other=0.0)
    if delta is not None:
        tl.store(delta + o_r, b_delta, mask=m_r)
    if terms is not None:
        b_weight = tl.zeros([BR], dtype=tl.float32)
        if sinks is not None:
            b_sink = tl.load(sinks + o_r % HQ, mask=m_r, other=0.0) - tl.load(lse + o_r, mask=m_r, other=0.0)
            b_weight = tl.exp2(b_sink * 1.4426950408889634)
        tl.store(terms + o_r, -b_delta * b_weight, mask=m_r)


@triton.jit(do_not_specialize=["tokens", "Sq", "HQ"])
def query_words_kernel(first, end, lse, delta, words, tokens, Sq, HQ, BT: tl.constexpr, BH: tl.constexpr):
    """words [B, HQ, Sq, 4] of BT tokens [B, Sq] and BH heads: lse in powers of two, the bits of first, delta, those of
    end."""
    pid = tl.program_id(0).to(tl.int64)
    NH = (HQ + BH - 1) // BH
    o_t = pid // NH * BT + tl.arange(0, BT)
    o_h = (pid % NH).to(tl.int32) * BH + tl.arange(0, BH)
    m_t = o_t < tokens
    m_r = m_t[:, None] & (o_h < HQ)[None, :]
    p_r = o_t[:, None] * HQ + o_h[None, :]
    b_lse = tl.load(lse + p_r, mask=m_r, other=0.0) * 1.4426950408889634
    b_delta = tl.load(delta + p_r, mask=m_r, other=0.0)
    b_first = tl.load(first + o_t, mask=m_t, other=0).to(tl.int32).to(tl.float32, bitcast=True)
    b_end = tl.load(end + o_t, mask=m_t, other=0).to(tl.int32).to(tl.float32, bitcast=True)
    b_keys = tl.broadcast_to(tl.join(b_first, b_end)[:, None, :], [BT, BH, 2])
    b_words = tl.reshape(tl.join(tl.join(b_lse, b_delta), b_keys), [BT, BH, 4])
    p_w = (o_t // Sq * HQ * Sq + o_t % Sq)[:, None] + o_h[None, :] * Sq
    tl.store(words + p_w[:, :, None] * 4 + tl.arange(0, 4)[None, None, :], b_words, mask=m_r[:, :, None])


@triton.jit(do_not_specialize=["Sq", "HQ"])
def query_rows_kernel(lse, delta, words, Sq, HQ, BT: tl.constexpr, BH: tl.constexpr):
    """words [B, HQ, 2, Sq] of BT tokens of one batch and BH heads: lse in powers of two, and delta."""
    pid = tl.program_id(0).to(tl.int64)
    NH, NT = (HQ + BH - 1) // BH, (Sq + BT - 1) // BT
    i_b = pid // NH // NT
    o_t = (pid // NH % NT).to(tl.int32) * BT + tl.arange(0, BT)
    o_h = (pid % NH).to(tl.int32) * BH + tl.arange(0, BH)
    m_r = (o_h < HQ)[:, None] & (o_t < Sq)[None, :]
    p_r = i_b * Sq * HQ + o_t[None, :] * HQ + o_h[:, None]
    b_lse = tl.load(lse + p_r, mask=m_r, other=0.0) * 1.4426950408889634
    b_delta = tl.load(delta + p_r, mask=m_r, other=0.0)
    p_w = (i_b * HQ + o_h)[:, None] * (2 * Sq) + o_t[None, :]
    tl.store(words + p_w, b_lse, mask=m_r)
    tl.store(words + p_w + Sq, b_delta, mask=m_r)


@triton.jit(do_not_specialize=["Sq", "Sk", "steps"])
def query_span_kernel(first, end, low, high, Sq, Sk, steps, BN: tl.constexpr):
    """Of BN keys of one batch: the first query that sees each, and the end of those. first and end never fall: each is
    a count of queries up to a value, found by halving, in as many steps as Sq has bits."""
    pid = tl.program_id(0).to(tl.int64)
    NN = (Sk + BN - 1) // BN
    i_b = pid // NN
    o_n = (pid % NN).to(tl.int32) * BN + tl.arange(0, BN)
    b_low = tl.zeros([BN], dtype=tl.int32)
    b_high, b_low_stop, b_high_stop = b_low, b_low + Sq, b_low + Sq
    for _ in range(steps):
        b_low, b_low_stop = halved(end + i_b * Sq, o_n, b_low, b_low_stop)
        b_high, b_high_stop = halved(first + i_b * Sq, o_n, b_high, b_high_stop)
    tl.store(low + i_b * Sk + o_n, b_low, mask=o_n < Sk)
    tl.store(high + i_b * Sk + o_n, b_high, mask=o_n < Sk)


@triton.jit
def halved(x, o_n, b_low, b_stop):
    """The half of low .. stop in which x first exceeds o_n."""
    b_at = (b_low + b_stop) // 2
    m_at = b_low < b_stop
    b_past = tl.load(x + b_at, mask=m_at, other=0) <= o_n
    return tl.where(m_at & b_past, b_at + 1, b_low), tl.where(m_at & ~b_past, b_at, b_stop)


@triton.jit
def words_of(words, m_m, BM: tl.constexpr, WHOLE: tl.constexpr):
    """(lse in powers of two, delta, first key, end of keys) of BM queries. A column of numbers that stands in a row is
    held, and loaded, by every thread that has a part of the row; of four words a query the load is wide enough for the
    compiler to share it."""
    p_w = words + (tl.arange(0, BM)[:, None] * 4 + tl.arange(0, 4)[None, :])
    if WHOLE:
        b_w = tl.load(p_w)
    else:
        b_w = tl.load(p_w, mask=m_m[:, None], other=0.0)
    b_numbers, b_keys = tl.split(tl.reshape(b_w, [BM, 2, 2]))
    b_lse, b_delta = tl.split(b_numbers)
    b_first, b_end = tl.split(b_keys)
    return b_lse, b_delta, b_first.to(tl.int32, bitcast=True), b_end.to(tl.int32, bitcast=True)


@triton.jit
def weigh_keys(
    b_dk, b_dv, b_k, b_v, o_n, q, d_o, words, own, sequence, start, b_slope, w_0, w_1, i_b, i_h, m, scale, softcap,
    threshold, first_batch, kept_scale, Sq, HQ, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
    BM: tl.constexpr, CAPPED: tl.constexpr, SLOPED: tl.constexpr, DROPPED: tl.constexpr,
    WHOLE: tl.constexpr, WITH_DK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of queries: (dk / scale, dv) of the keys o_n. Products stand with keys first, so that no accumulator is
    transposed, which Triton miscompiles on Hopper."""
    o_i = tl.arange(0, BM)
    m_m = m + o_i < Sq
    p_b = i_b * Sq
    row = (p_b + m) * HQ + i_h
    b_q = rows_of(q + row * D, o_i, HQ * D, m_m, D, BD, WHOLE)
    b_lse, b_delta, b_first, b_end = words_of(words + ((i_b * HQ + i_h) * Sq + m) * 4, m_m, BM, WHOLE)
    b_st, b_t = in_log2(tl.dot(b_k, tl.trans(b_q), input_precision=PRECISION), scale, softcap, CAPPED)
    if SLOPED:
        b_own = tl.load(own + p_b + m + o_i, mask=m_m, other=0)
        b_st += b_slope * (o_n[:, None] - b_own[None, :]).to(tl.float32)
    b_st -= b_lse[None, :]
    if not WHOLE:
        b_keep = (o_n[:, None] >= b_first[None, :]) & (o_n[:, None] < b_end[None, :])
        b_st = tl.where(b_keep, b_st, float("-inf"))
    b_pt = tl.exp2(b_st)
    b_dpt = tl.zeros_like(b_pt)
    if d_o is not None:
        b_do = rows_of(d_o + row * DV, o_i, HQ * DV, m_m, DV, BV, WHOLE)
        b_wt = b_pt
        if DROPPED:
            b_batch, b_row, b_start = places(sequence, start, own, i_b, p_b + m + o_i, m_m, first_batch)
            b_r, b_c = query_words(w_0, w_1, b_batch, b_row)
            b_kept = kept(b_r[None, :], b_c[None, :], o_n[:, None] - b_start[None, :], threshold)
            b_wt = tl.where(b_kept, b_pt, 0.0)
        b_dv = tl.dot(b_wt.to(b_do.dtype), b_do, b_dv, input_precision=PRECISION)
        b_dpt = tl.dot(b_v, tl.trans(b_do), input_precision=PRECISION)
        if DROPPED:
            b_dpt = tl.where(b_kept, b_dpt * kept_scale, 0.0)
    if WITH_DK:
        b_dst = b_pt * (b_dpt - b_delta[None, :])
        if CAPPED:
            b_dst *= 1.0 - b_t * b_t
        if not WHOLE:
            b_dst = tl.where(b_pt == 0.0, 0.0, b_dst)  # a weight of 0 has no gradient, whatever its value is
        b_dk = tl.dot(b_dst.to(b_q.dtype), b_q, b_dk, input_precision=PRECISION)
    return b_dk, b_dv


@triton.jit(
    do_not_specialize=[
        "scale", "softcap", "Sq", "Sk", "H", "HQ", "seed_low", "seed_high", "threshold", "first_batch", "kept_scale",
    ]
)  # fmt: skip
def flash_bwd_dkdv_kernel(
    q, k, v, first, end, own, slopes, sequence, start, d_o, words, d_k, d_v, scale, softcap, Sq, Sk, H, HQ,
    seed_low, seed_high, threshold, first_batch, kept_scale, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr,
    BV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, DROPPED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of BN keys of one key head, over the queries of its whole group, in a fixed order."""
    SLOPED: tl.constexpr = slopes is not None
    WITH_DK: tl.constexpr = d_k is not None
    pid = tl.program_id(0).to(tl.int64)
    NN = (Sk + BN - 1) // BN
    tile, i_bh = tile_and_head(pid, NN)
    n = tile.to(tl.int32) * BN
    i_hk, i_b = i_bh % H, i_bh // H
    o_n = n + tl.arange(0, BN)
    o_d, o_v = tl.arange(0, BD), tl.arange(0, BV)
    m_kd = (o_n < Sk)[:, None] & (o_d < D)[None, :]
    m_kv = (o_n < Sk)[:, None] & (o_v < DV)[None, :]
    p_n = (i_b * Sk + o_n) * H + i_hk
    b_k = tl.load(k + p_n[:, None] * D + o_d[None, :], mask=m_kd, other=0.0)
    b_v = tl.load(v + p_n[:, None] * DV + o_v[None, :], mask=m_kv, other=0.0)
    low, high, whole, whole_stop = seen_from(first, end, i_b * Sq, n, Sq, BM, BN)
    b_dk = tl.zeros([BN, BD], dtype=tl.float32)
    b_dv = tl.zeros([BN, BV], dtype=tl.float32)
    for i_g in range(HQ // H):
        i_h = i_hk * (HQ // H) + i_g
        b_slope, w_0, w_1 = 0.0, i_h, i_h
        if SLOPED:
            b_slope = tl.load(slopes + i_h) * 1.4426950408889634
        if DROPPED:
            w_0, w_1 = head_words(seed_low, seed_high, i_h)
        for at in range(low, high - (whole_stop - whole), BM):
            m = at + tl.where(at >= whole, whole_stop - whole, 0)
            b_dk, b_dv = weigh_keys(
                b_dk, b_dv, b_k, b_v, o_n, q, d_o, words, own, sequence, start, b_slope, w_0, w_1, i_b, i_h, m, scale,
                softcap, threshold, first_batch, kept_scale, Sq, HQ, D, DV, BD, BV, BM, CAPPED, SLOPED, DROPPED, False,
                WITH_DK, PRECISION,
            )  # fmt: skip
        for at in range(0, whole_stop - whole, BM):
            m = whole + at
            b_dk, b_dv = weigh_keys(
                b_dk, b_dv, b_k, b_v, o_n, q, d_o, words, own, sequence, start, b_slope, w_0, w_1, i_b, i_h, m, scale,
                softcap, threshold, first_batch, kept_scale, Sq, HQ, D, DV, BD, BV, BM, CAPPED, SLOPED, DROPPED, True,
                WITH_DK, PRECISION,
            )  # fmt: skip
    if d_k is not None:
        tl.store(d_k + p_n[:, None] * D + o_d[None, :], (b_dk * scale).to(d_k.dtype.element_ty), mask=m_kd)
    if DROPPED:
        b_dv *= kept_scale
    if d_v is not None:
        tl.store(d_v + p_n[:, None] * DV + o_v[None, :], b_dv.to(d_v.dtype.element_ty), mask=m_kv)


@triton.jit
def weigh_queries(
    b_dq, b_q, b_do, b_lse, b_delta, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, n, border,
    scale, softcap, threshold, kept_scale, Sk, H, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr,
    BV: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, SLOPED: tl.constexpr, DROPPED: tl.constexpr,
    WHOLE: tl.constexpr, CLEARED: tl.constexpr, WITH_DO: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys: dq / scale of the queries."""
    o_i = tl.arange(0, BN)
    o_n = n + o_i
    m_n = o_n < Sk
    row = tl.cast(n, tl.int64) * H
    b_k = rows_of(k + (p_k + row * D), o_i, H * D, m_n, D, BD, WHOLE)
    b_s, b_t = in_log2(tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION), scale, softcap, CAPPED)
    if SLOPED:
        b_s += b_slope * (o_n[None, :] - b_own[:, None]).to(tl.float32)
    b_s -= b_lse[:, None]
    b_p = tl.exp2(b_s)
    b_dp = tl.zeros_like(b_p)
    if WITH_DO:
        b_v = rows_of(v + (p_v + row * DV), o_i, H * DV, m_n, DV, BV, WHOLE)
        b_dp = tl.dot(b_do, tl.trans(b_v), input_precision=PRECISION)
        if DROPPED:
            b_kept = kept(b_r[:, None], b_c[:, None], o_n[None, :] - b_start[:, None], threshold)
            b_dp = tl.where(b_kept, b_dp * kept_scale, 0.0)
    if border:
        b_keep = between(o_i[None, :], (b_first - n)[:, None], (b_end - n)[:, None])
        b_p = tl.where(b_keep, b_p, 0.0)
    b_ds = b_p * (b_dp - b_delta[:, None])
    if CAPPED:
        b_ds *= 1.0 - b_t * b_t
    if CLEARED:
        b_k, b_nan = without_nan(b_k)
        b_keep = between(o_i[None, :], (b_first - n)[:, None], (b_end - n)[:, None])
        b_ds = tl.where(b_keep, b_ds + b_nan[None, :], 0.0)
    return tl.dot(b_ds.to(b_k.dtype), b_k, b_dq, input_precision=PRECISION)


@triton.jit
def weigh_all(
    b_q, b_do, b_lse, b_delta, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, low, high, whole,
    whole_stop, scale, softcap, threshold, kept_scale, Sk, H, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr,
    BV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, SLOPED: tl.constexpr,
    DROPPED: tl.constexpr, ONE_LOOP: tl.constexpr, CLEARED: tl.constexpr, WITH_DO: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The same of all tiles from low to high. ONE_LOOP: in this order, with a branch for those at a border; else those
    at a border come first."""
    b_dq = tl.zeros([BM, BD], dtype=tl.float32)
    if ONE_LOOP:
        full = Sk // BN * BN
        for n in range(low, tl.minimum(high, full), BN):
            border = (n < whole) | (n >= whole_stop)
            b_dq = weigh_queries(
                b_dq, b_q, b_do, b_lse, b_delta, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, n,
                border, scale, softcap, threshold, kept_scale, Sk, H, D, DV, BD, BV, BN, CAPPED, SLOPED, DROPPED, True,
                CLEARED, WITH_DO, PRECISION,
            )  # fmt: skip
        if high > full:
            b_dq = weigh_queries(
                b_dq, b_q, b_do, b_lse, b_delta, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v,
                full, True, scale, softcap, threshold, kept_scale, Sk, H, D, DV, BD, BV, BN, CAPPED, SLOPED, DROPPED,
                False, CLEARED, WITH_DO, PRECISION,
            )  # fmt: skip
    else:
        for at in range(low, high - (whole_stop - whole), BN):
            n = at + tl.where(at >= whole, whole_stop - whole, 0)
            b_dq = weigh_queries(
                b_dq, b_q, b_do, b_lse, b_delta, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, n,
                True, scale, softcap, threshold, kept_scale, Sk, H, D, DV, BD, BV, BN, CAPPED, SLOPED, DROPPED,
                False, CLEARED, WITH_DO, PRECISION,
            )  # fmt: skip
        for at in range(0, whole_stop - whole, BN):
            n = whole + at
            b_dq = weigh_queries(
                b_dq, b_q, b_do, b_lse, b_delta, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, n,
                False, scale, softcap, threshold, kept_scale, Sk, H, D, DV, BD, BV, BN, CAPPED, SLOPED, DROPPED, True,
                False, WITH_DO, PRECISION,
            )  # fmt: skip
    return b_dq


@triton.jit(
    do_not_specialize=[
        "scale", "softcap", "Sq", "Sk", "H", "HQ", "seed_low", "seed_high", "threshold", "first_batch", "kept_scale",
    ]
)  # fmt: skip
def flash_bwd_dq_kernel(
    q, k, v, first, end, own, slopes, sequence, start, d_o, lse, delta, d_q, scale, softcap, Sq, Sk, H, HQ, seed_low,
    seed_high, threshold, first_batch, kept_scale, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr,
    BV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, DROPPED: tl.constexpr,
    ONE_LOOP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of BM queries of one head."""
    LOG2E: tl.constexpr = 1.4426950408889634
    SLOPED: tl.constexpr = slopes is not None
    WITH_DO: tl.constexpr = d_o is not None
    pid = tl.program_id(0).to(tl.int64)
    NM = (Sq + BM - 1) // BM
    tile, i_bh = tile_and_head(pid, NM)
    o_m = (NM - 1 - tile).to(tl.int32) * BM + tl.arange(0, BM)
    i_h, i_b = i_bh % HQ, i_bh // HQ
    p_k = (i_b * Sk * H + i_h // (HQ // H)) * D
    p_v = (i_b * Sk * H + i_h // (HQ // H)) * DV
    o_d, o_v = tl.arange(0, BD), tl.arange(0, BV)
    m_m = o_m < Sq
    m_md = m_m[:, None] & (o_d < D)[None, :]
    p_m = (i_b * Sq + o_m) * HQ + i_h
    b_q = tl.load(q + p_m[:, None] * D + o_d[None, :], mask=m_md, other=0.0)
    b_do = b_q
    if WITH_DO:
        b_do = tl.load(d_o + p_m[:, None] * DV + o_v[None, :], mask=m_m[:, None] & (o_v < DV)[None, :], other=0.0)
    b_lse = tl.load(lse + p_m, mask=m_m, other=0.0) * LOG2E
    b_delta = tl.load(delta + p_m, mask=m_m, other=0.0)
    b_first, b_end, low, high, whole, whole_stop = seen_by(first, end, i_b * Sq, o_m, Sq, BN)
    b_own, b_slope, b_r, b_c, b_start = o_m, 0.0, o_m, o_m, o_m
    if SLOPED:
        b_own = tl.load(own + i_b * Sq + o_m, mask=m_m, other=0)
        b_slope = tl.load(slopes + i_h) * LOG2E
    if DROPPED:
        b_batch, b_row, b_start = places(sequence, start, own, i_b, i_b * Sq + o_m, m_m, first_batch)
        w_0, w_1 = head_words(seed_low, seed_high, i_h)
        b_r, b_c = query_words(w_0, w_1, b_batch, b_row)
    b_dq = weigh_all(
        b_q, b_do, b_lse, b_delta, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, low, high, whole,
        whole_stop, scale, softcap, threshold, kept_scale, Sk, H, D, DV, BD, BV, BM, BN, CAPPED, SLOPED, DROPPED,
        ONE_LOOP, not ONE_LOOP, WITH_DO, PRECISION,
    )  # fmt: skip
    if ONE_LOOP:
        if not_finite(b_dq):
            # a key of a border tile may have met queries that do not see it
            b_dq = weigh_all(
                b_q, b_do, b_lse, b_delta, b_first, b_end, b_own, b_slope, b_r, b_c, b_start, k, v, p_k, p_v, low, high,
                whole, whole_stop, scale, softcap, threshold, kept_scale, Sk, H, D, DV, BD, BV, BM, BN, CAPPED, SLOPED,
                DROPPED, ONE_LOOP, True, WITH_DO, PRECISION,
            )  # fmt: skip
    b_dq *= scale
    tl.store(d_q + p_m[:, None] * D + o_d[None, :], b_dq.to(d_q.dtype.element_ty), mask=m_md)
