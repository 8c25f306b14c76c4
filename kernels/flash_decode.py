"""A few queries over many keys: each split of the keys alone, then the splits together. The keys lie one after another,
or in pages."""

import triton
import triton.language as tl

from ._attention import in_log2, rows_of, settled, tiles_seen, with_sink, without_nan
from ._eight_bits import dequantized


@triton.jit
def first_row(table, i_b, Sk, SHARE, ROWS):
    """Of the cache that batch i_b reads."""
    if table is None:
        row = i_b * Sk
    elif SHARE is None:
        row = 0
    else:
        row = i_b // SHARE * ROWS
    return row


@triton.jit
def key_rows(table, p_t, row, o_n, m_n, PAGE, BITS, POWER: tl.constexpr, WHOLE: tl.constexpr):
    """Where the keys o_n lie, as rows of the cache, whose first one is row; p_t: where the pages are in the table.
    POWER: PAGE is 2 ** BITS, which spares each key a division. WHOLE: all of them are read."""
    if table is None:
        rows = row + o_n
    else:
        if POWER:
            place, within = o_n >> BITS, o_n & (PAGE - 1)
        else:
            place, within = o_n // PAGE, o_n % PAGE
        page = tl.load(table + p_t + place) if WHOLE else tl.load(table + p_t + place, mask=m_n, other=0)
        rows = row + page.to(tl.int64) * PAGE + within
    return rows


@triton.jit
def attend_rows(
    b_o, b_l, b_m, b_q, b_qr, b_first, b_end, b_own, b_slope, k, k_rope, v, k_scale, v_scale, table, p_t, row,
    i_hk, n, n_first, scale, softcap, Sk, PAGE, BITS, H, D: tl.constexpr, DR: tl.constexpr, DV: tl.constexpr,
    BD: tl.constexpr, BR: tl.constexpr, BV: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, SLOPED: tl.constexpr,
    SAME: tl.constexpr, ALIKE: tl.constexpr, POWER: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys: (sum of weights times values, sum of weights, largest score) of each row of b_q. SAME: the
    values are the keys, and are read once. ALIKE: all rows see the same keys, and no other key is read."""
    o_n = n + tl.arange(0, BN)
    # beyond what any query sees a page may not exist
    m_n = (o_n < Sk) & (o_n < tl.max(b_end, axis=0)) & (o_n >= n_first)
    o_row = key_rows(table, p_t, row, o_n, m_n, PAGE, BITS, POWER, WHOLE)
    rows = o_row * H + i_hk
    b_ks, b_vs = None, None
    if k_scale is not None:
        b_ks = tl.load(k_scale + rows, mask=m_n, other=0.0)[:, None]
        b_vs = tl.load(v_scale + rows, mask=m_n, other=0.0)[:, None]
    b_k = dequantized(rows_of(k, rows, D, m_n, D, BD, WHOLE), b_ks, b_q.dtype)
    b_s = tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION)
    if k_rope is not None:
        b_kr = rows_of(k_rope, o_row, DR, m_n, DR, BR, WHOLE)
        b_s = tl.dot(b_qr, tl.trans(b_kr), b_s, input_precision=PRECISION)
    b_s, _ = in_log2(b_s, scale, softcap, CAPPED)
    if SAME:
        b_v = b_k
    else:
        b_v = dequantized(rows_of(v, rows, DV, m_n, DV, BV, WHOLE), b_vs, b_q.dtype)
    if SLOPED:
        b_s += b_slope[:, None] * (o_n[None, :] - b_own[:, None]).to(tl.float32)
    if not WHOLE:
        if not ALIKE:
            b_v, b_nan = without_nan(b_v)
            b_s += b_nan[None, :]
        b_keep = (o_n[None, :] >= b_first[:, None]) & (o_n[None, :] < b_end[:, None])
        b_s = tl.where(b_keep, b_s, float("-inf"))
    b_new = tl.maximum(b_m, tl.max(b_s, axis=1))
    b_base = tl.where(b_new == float("-inf"), 0.0, b_new)
    b_p = tl.exp2(b_s - b_base[:, None])
    b_shrink = tl.exp2(b_m - b_base)
    b_o = tl.dot(b_p.to(b_v.dtype), b_v, b_o * b_shrink[:, None], input_precision=PRECISION)
    return b_o, b_l * b_shrink + tl.sum(b_p, axis=1), b_new


@triton.jit
def split_range(start, stop, whole, whole_stop, i_s, splits, BN: tl.constexpr):
    """The part of the tiles from start to stop that is split i_s's, and of those that are seen whole: of all splits
    the same number of tiles, or one more."""
    tiles = tl.maximum(stop - start, 0) // BN
    low = start + i_s * tiles // splits * BN
    high = start + (i_s + 1) * tiles // splits * BN
    w_low = tl.minimum(tl.maximum(whole, low), high)
    return low, high, w_low, tl.maximum(tl.minimum(whole_stop, high), w_low)


@triton.jit(
    do_not_specialize=["scale", "softcap", "Sq", "Sk", "NP", "PAGE", "BITS", "SHARE", "ROWS", "H", "HQ", "NB", "splits"]
)
def flash_decode_kernel(
    q, q_rope, k, k_rope, v, k_scale, v_scale, table, first, end, own, sinks, slopes, o, lse, scale, softcap, Sq, Sk,
    NP, PAGE, BITS, SHARE, ROWS, H, HQ, NB, splits, D: tl.constexpr, DR: tl.constexpr, DV: tl.constexpr,
    BD: tl.constexpr, BR: tl.constexpr, BV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, ONE: tl.constexpr,
    CAPPED: tl.constexpr, SAME: tl.constexpr, ALIKE: tl.constexpr, POWER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o and lse [splits, NB, Sq, HQ] of one split, for BM rows of one key head: its query heads at each query. Of ONE
    split that is the result, of several not yet with the sinks. q_rope and k_rope, which all heads share, widen queries
    and keys; k and v in eight bits have scales beside them. Of a table's batches all share the cache, or every SHARE
    have ROWS rows of it for themselves."""
    LOG2E: tl.constexpr = 1.4426950408889634
    SLOPED: tl.constexpr = slopes is not None
    G = HQ // H
    pid = tl.program_id(0).to(tl.int64)
    NM = (Sq * G + BM - 1) // BM
    o_r = (NM - 1 - pid % NM).to(tl.int32) * BM + tl.arange(0, BM)  # the last see most
    i_hk = (pid // NM) % H
    i_b = (pid // NM // H) % NB
    i_s = pid // NM // H // NB
    p_t = i_b * NP
    row = first_row(table, i_b, Sk, SHARE, ROWS)
    o_m, o_h = o_r // G, i_hk * G + o_r % G
    m_r = o_r < Sq * G
    o_d, o_v = tl.arange(0, BD), tl.arange(0, BV)
    p_m = i_b * Sq + o_m
    p_q = p_m * HQ + o_h
    b_q = tl.load(q + p_q[:, None] * D + o_d[None, :], mask=m_r[:, None] & (o_d < D)[None, :], other=0.0)
    b_qr = b_q
    if q_rope is not None:
        o_e = tl.arange(0, BR)
        m_e = m_r[:, None] & (o_e < DR)[None, :]
        b_qr = tl.load(q_rope + p_q[:, None] * DR + o_e[None, :], mask=m_e, other=0.0)
    b_first = tl.zeros([BM], dtype=tl.int32) if first is None else tl.load(first + p_m, mask=m_r, other=0)
    b_end = tl.load(end + p_m, mask=m_r, other=0)
    b_own, b_slope = b_first, 0.0
    if SLOPED:
        b_own = tl.load(own + p_m, mask=m_r, other=0)
        b_slope = tl.load(slopes + o_h, mask=m_r, other=0.0) * LOG2E
    n_first = tl.min(tl.where(m_r, b_first, 2147418112), axis=0)
    start, stop, whole, whole_stop = tiles_seen(b_first, b_end, m_r, BN)
    start, stop, whole, whole_stop = split_range(start, stop, whole, whole_stop, i_s.to(tl.int32), splits, BN)
    b_o = tl.zeros([BM, BV], dtype=tl.float32)
    b_l = tl.zeros([BM], dtype=tl.float32)
    b_m = tl.full([BM], float("-inf"), dtype=tl.float32)
    for at in range(start, stop - (whole_stop - whole), BN):
        n = at + tl.where(at >= whole, whole_stop - whole, 0)
        b_o, b_l, b_m = attend_rows(
            b_o, b_l, b_m, b_q, b_qr, b_first, b_end, b_own, b_slope, k, k_rope, v, k_scale, v_scale, table, p_t, row,
            i_hk, n, n_first, scale, softcap, Sk, PAGE, BITS, H, D, DR, DV, BD, BR, BV, BN, CAPPED, SLOPED, SAME, ALIKE,
            POWER, False, PRECISION,
        )  # fmt: skip
    for at in range(0, whole_stop - whole, BN):
        n = whole + at
        b_o, b_l, b_m = attend_rows(
            b_o, b_l, b_m, b_q, b_qr, b_first, b_end, b_own, b_slope, k, k_rope, v, k_scale, v_scale, table, p_t, row,
            i_hk, n, n_first, scale, softcap, Sk, PAGE, BITS, H, D, DR, DV, BD, BR, BV, BN, CAPPED, SLOPED, SAME, ALIKE,
            POWER, True, PRECISION,
        )  # fmt: skip
    if ONE:
        if sinks is not None:
            b_o, b_l, b_m = with_sink(b_o, b_l, b_m, tl.load(sinks + o_h, mask=m_r, other=0.0) * LOG2E)
    b_o, b_lse = settled(b_o, b_l, b_m)
    p_o = i_s * NB * Sq * HQ + p_q
    m_rv = m_r[:, None] & (o_v < DV)[None, :]
    tl.store(o + p_o[:, None] * DV + o_v[None, :], b_o.to(o.dtype.element_ty), mask=m_rv)
    if lse is not None:
        tl.store(lse + p_o, b_lse, mask=m_r)


@triton.jit(do_not_specialize=["rows", "HQ", "splits"])
def combine_splits_kernel(
    o_parts, lse_parts, sinks, o, lse, rows, HQ, splits, DV: tl.constexpr, BV: tl.constexpr, BR: tl.constexpr,
    BS: tl.constexpr,
):  # fmt: skip
    """o and lse of BR rows [B, Sq, HQ], over all splits in their order, at most BS, and the sinks."""
    LOG2E: tl.constexpr = 1.4426950408889634
    o_r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    o_s, o_v = tl.arange(0, BS), tl.arange(0, BV)
    m_r = o_r < rows
    m_rv = m_r[:, None] & (o_v < DV)[None, :]
    b_lse = tl.load(
        lse_parts + o_s[:, None].to(tl.int64) * rows + o_r[None, :], mask=(o_s < splits)[:, None] & m_r[None, :],
        other=float("-inf"),
    )  # fmt: skip
    b_m = tl.max(b_lse, axis=0) * LOG2E
    b_base = tl.where(b_m == float("-inf"), 0.0, b_m)
    b_l = tl.sum(tl.exp2(b_lse * LOG2E - b_base[None, :]), axis=0)
    b_o = tl.zeros([BR, BV], dtype=tl.float32)
    # no split waits for the one before: the loads of eight are on their way at a time
    for s in tl.range(0, splits, loop_unroll_factor=8):
        p_r = tl.cast(s, tl.int64) * rows + o_r
        b_w = tl.exp2(tl.load(lse_parts + p_r, mask=m_r, other=float("-inf")) * LOG2E - b_base)
        b_x = tl.load(o_parts + p_r[:, None] * DV + o_v[None, :], mask=m_rv, other=0.0)
        b_o += b_x.to(tl.float32) * b_w[:, None]
    if sinks is not None:
        b_o, b_l, b_m = with_sink(b_o, b_l, b_m, tl.load(sinks + o_r % HQ, mask=m_r, other=0.0) * LOG2E)
    b_o, b_lse = settled(b_o, b_l, b_m)
    tl.store(o + o_r[:, None] * DV + o_v[None, :], b_o.to(o.dtype.element_ty), mask=m_rv)
    if lse is not None:
        tl.store(lse + o_r, b_lse, mask=m_r)
