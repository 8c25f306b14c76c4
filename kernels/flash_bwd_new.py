"""Candidates of dkdv: masks by key."""

import triton
import triton.language as tl

from ._attention import between, in_log2, rows_of, tile_and_head
from ._dropout import head_words, kept, places, query_words


@triton.jit(do_not_specialize=["Sq", "Sk", "steps"])
def query_span_kernel(first, end, low, high, Sq, Sk, steps, BN: tl.constexpr):
    """Of BN keys: the first query that sees each, and the end of those. first and end never fall: each is a count of
    queries up to a value, found by halving."""
    pid = tl.program_id(0).to(tl.int64)
    NN = (Sk + BN - 1) // BN
    i_b = pid // NN
    o_n = (pid % NN).to(tl.int32) * BN + tl.arange(0, BN)
    b_low, b_low_stop = tl.zeros([BN], dtype=tl.int32), tl.zeros([BN], dtype=tl.int32) + Sq
    b_high, b_high_stop = b_low, b_low_stop
    for _ in range(steps):
        b_at = (b_low + b_low_stop) // 2
        m_at = b_low < b_low_stop
        b_past = tl.load(end + i_b * Sq + b_at, mask=m_at, other=0) <= o_n
        b_low = tl.where(m_at & b_past, b_at + 1, b_low)
        b_low_stop = tl.where(m_at & ~b_past, b_at, b_low_stop)
        b_at = (b_high + b_high_stop) // 2
        m_at = b_high < b_high_stop
        b_past = tl.load(first + i_b * Sq + b_at, mask=m_at, other=0) <= o_n
        b_high = tl.where(m_at & b_past, b_at + 1, b_high)
        b_high_stop = tl.where(m_at & ~b_past, b_at, b_high_stop)
    tl.store(low + i_b * Sk + o_n, b_low, mask=o_n < Sk)
    tl.store(high + i_b * Sk + o_n, b_high, mask=o_n < Sk)


@triton.jit
def words_of(words, m_m, BM: tl.constexpr, WHOLE: tl.constexpr):
    p_w = words + (tl.arange(0, BM)[:, None] * 4 + tl.arange(0, 4)[None, :])
    if WHOLE:
        b_w = tl.load(p_w)
    else:
        b_w = tl.load(p_w, mask=m_m[:, None], other=0.0)
    b_numbers, b_keys = tl.split(tl.reshape(b_w, [BM, 2, 2]))
    b_lse, b_delta = tl.split(b_numbers)
    return b_lse, b_delta


@triton.jit
def weigh_keys(
    b_dk, b_dv, b_k, b_v, o_n, b_low, b_high, q, d_o, words, own, sequence, start, b_slope, w_0, w_1, i_b, i_h, m,
    border, scale, softcap, threshold, first_batch, kept_scale, Sq, HQ, D: tl.constexpr, DV: tl.constexpr,
    BD: tl.constexpr, BV: tl.constexpr, BM: tl.constexpr, CAPPED: tl.constexpr, SLOPED: tl.constexpr,
    DROPPED: tl.constexpr, WHOLE: tl.constexpr, WITH_DK: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    o_i = tl.arange(0, BM)
    m_m = m + o_i < Sq
    p_b = i_b * Sq
    row = (p_b + m) * HQ + i_h
    b_q = rows_of(q + row * D, o_i, HQ * D, m_m, D, BD, WHOLE)
    b_lse, b_delta = words_of(words + ((i_b * HQ + i_h) * Sq + m) * 4, m_m, BM, WHOLE)
    b_st = tl.dot(b_k, tl.trans(b_q), input_precision=PRECISION)
    if EARLY:
        b_do = rows_of(d_o + row * DV, o_i, HQ * DV, m_m, DV, BV, WHOLE)
        b_dpt = tl.dot(b_v, tl.trans(b_do), input_precision=PRECISION)
    b_st, b_t = in_log2(b_st, scale, softcap, CAPPED)
    if SLOPED:
        b_own = tl.load(own + p_b + m + o_i, mask=m_m, other=0)
        b_st += b_slope * (o_n[:, None] - b_own[None, :]).to(tl.float32)
    b_st -= b_lse[None, :]
    b_pt = tl.exp2(b_st)
    if border:
        b_keep = between(o_i[None, :], (b_low - m)[:, None], (b_high - m)[:, None])
        b_pt = tl.where(b_keep, b_pt, 0.0)
    if not EARLY:
        b_dpt = tl.zeros_like(b_pt)
    if d_o is not None:
        if not EARLY:
            b_do = rows_of(d_o + row * DV, o_i, HQ * DV, m_m, DV, BV, WHOLE)
        b_wt = b_pt
        if DROPPED:
            b_batch, b_row, b_start = places(sequence, start, own, i_b, p_b + m + o_i, m_m, first_batch)
            b_r, b_c = query_words(w_0, w_1, b_batch, b_row)
            b_kept = kept(b_r[None, :], b_c[None, :], o_n[:, None] - b_start[None, :], threshold)
            b_wt = tl.where(b_kept, b_pt, 0.0)
        b_dv = tl.dot(b_wt.to(b_do.dtype), b_do, b_dv, input_precision=PRECISION)
        if not EARLY:
            b_dpt = tl.dot(b_v, tl.trans(b_do), input_precision=PRECISION)
        if DROPPED:
            b_dpt = tl.where(b_kept, b_dpt * kept_scale, 0.0)
    if WITH_DK:
        b_dst = b_pt * (b_dpt - b_delta[None, :])
        if CAPPED:
            b_dst *= 1.0 - b_t * b_t
        b_dk = tl.dot(b_dst.to(b_q.dtype), b_q, b_dk, input_precision=PRECISION)
    return b_dk, b_dv


@triton.jit(
    do_not_specialize=[
        "scale", "softcap", "Sq", "Sk", "H", "HQ", "seed_low", "seed_high", "threshold", "first_batch", "kept_scale",
    ]
)  # fmt: skip
def flash_bwd_dkdv_kernel(
    q, k, v, low, high, own, slopes, sequence, start, d_o, words, d_k, d_v, scale, softcap, Sq, Sk, H, HQ,
    seed_low, seed_high, threshold, first_batch, kept_scale, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr,
    BV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, DROPPED: tl.constexpr,
    PRECISION: tl.constexpr, FORM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
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
    last = tl.minimum(n + BN, Sk) - 1
    at_low = tl.load(low + i_b * Sk + n) // BM * BM
    at_high = (tl.load(high + i_b * Sk + last) + BM - 1) // BM * BM
    whole = (tl.load(low + i_b * Sk + last) + BM - 1) // BM * BM
    whole_stop = tl.load(high + i_b * Sk + n) // BM * BM
    whole, whole_stop = tl.where(whole < whole_stop, whole, at_high), tl.where(whole < whole_stop, whole_stop, at_high)
    b_low = tl.load(low + i_b * Sk + o_n, mask=o_n < Sk, other=0)
    b_high = tl.load(high + i_b * Sk + o_n, mask=o_n < Sk, other=0)
    b_dk = tl.zeros([BN, BD], dtype=tl.float32)
    b_dv = tl.zeros([BN, BV], dtype=tl.float32)
    for i_g in range(HQ // H):
        i_h = i_hk * (HQ // H) + i_g
        b_slope, w_0, w_1 = 0.0, i_h, i_h
        if SLOPED:
            b_slope = tl.load(slopes + i_h) * 1.4426950408889634
        if DROPPED:
            w_0, w_1 = head_words(seed_low, seed_high, i_h)
        if FORM == 1:
            full = Sq // BM * BM
            for m in range(at_low, tl.minimum(at_high, full), BM):
                border = (m < whole) | (m >= whole_stop)
                b_dk, b_dv = weigh_keys(
                    b_dk, b_dv, b_k, b_v, o_n, b_low, b_high, q, d_o, words, own, sequence, start, b_slope, w_0, w_1,
                    i_b, i_h, m, border, scale, softcap, threshold, first_batch, kept_scale, Sq, HQ, D, DV, BD, BV, BM,
                    CAPPED, SLOPED, DROPPED, True, WITH_DK, PRECISION, EARLY,
                )  # fmt: skip
            if at_high > full:
                b_dk, b_dv = weigh_keys(
                    b_dk, b_dv, b_k, b_v, o_n, b_low, b_high, q, d_o, words, own, sequence, start, b_slope, w_0, w_1,
                    i_b, i_h, full, True, scale, softcap, threshold, first_batch, kept_scale, Sq, HQ, D, DV, BD, BV,
                    BM, CAPPED, SLOPED, DROPPED, False, WITH_DK, PRECISION, EARLY,
                )  # fmt: skip
        else:
            for at in range(at_low, at_high - (whole_stop - whole), BM):
                m = at + tl.where(at >= whole, whole_stop - whole, 0)
                b_dk, b_dv = weigh_keys(
                    b_dk, b_dv, b_k, b_v, o_n, b_low, b_high, q, d_o, words, own, sequence, start, b_slope, w_0, w_1,
                    i_b, i_h, m, True, scale, softcap, threshold, first_batch, kept_scale, Sq, HQ, D, DV, BD, BV, BM,
                    CAPPED, SLOPED, DROPPED, False, WITH_DK, PRECISION, EARLY,
                )  # fmt: skip
            for at in range(0, whole_stop - whole, BM):
                b_dk, b_dv = weigh_keys(
                    b_dk, b_dv, b_k, b_v, o_n, b_low, b_high, q, d_o, words, own, sequence, start, b_slope, w_0, w_1,
                    i_b, i_h, whole + at, False, scale, softcap, threshold, first_batch, kept_scale, Sq, HQ, D, DV, BD,
                    BV, BM, CAPPED, SLOPED, DROPPED, True, WITH_DK, PRECISION, EARLY,
                )  # fmt: skip
    b_seen = (b_low < b_high)[:, None]
    if d_k is not None:
        b_dk = tl.where(b_seen, b_dk * scale, 0.0)
        tl.store(d_k + p_n[:, None] * D + o_d[None, :], b_dk.to(d_k.dtype.element_ty), mask=m_kd)
    if DROPPED:
        b_dv *= kept_scale
    if d_v is not None:
        tl.store(d_v + p_n[:, None] * DV + o_v[None, :], b_dv.to(d_v.dtype.element_ty), mask=m_kv)
