"""Many heads of a few queries over many keys of one latent, which is key and value: as flash_decode, but for tiles.

A tile of queries as wide as the latent and sums as wide as the latent do not both fit beside each other for 128 heads,
and with 64 the matrix units wait for shared memory. So each program makes one half of the output's columns, and scores
from both halves of the keys: a product more, and twice the rows for each tile that is read.
"""

import triton
import triton.language as tl

from ._attention import in_log2, rows_of, settled, tiles_seen, without_nan
from .flash_decode import first_row, key_rows, split_range


@triton.jit
def attend_latent(
    b_o, b_l, b_m, b_q, b_q_rest, b_q_rope, b_first, b_end, c, k_rope, table, p_t, row, half, n, n_first, scale, Sk,
    PAGE, BITS, D: tl.constexpr, DR: tl.constexpr, BW: tl.constexpr, BR: tl.constexpr, BN: tl.constexpr,
    ALIKE: tl.constexpr, POWER: tl.constexpr, RISING: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys: (sum of weights times values, sum of weights, largest score) of each row of queries. half: of
    the columns, which are values here; the rest are the others."""
    o_n = n + tl.arange(0, BN)
    # beyond what any query sees a page may not exist
    m_n = (o_n < Sk) & (o_n < tl.max(b_end, axis=0)) & (o_n >= n_first)
    o_row = key_rows(table, p_t, row, o_n, m_n, PAGE, BITS, POWER, WHOLE)
    b_c = rows_of(c + half * BW, o_row, D, m_n, BW, BW, WHOLE)
    b_rest = rows_of(c + (1 - half) * BW, o_row, D, m_n, BW, BW, WHOLE)
    b_rope = rows_of(k_rope, o_row, DR, m_n, DR, BR, WHOLE)
    b_s = tl.dot(b_q, tl.trans(b_c), input_precision=PRECISION)
    b_s = tl.dot(b_q_rest, tl.trans(b_rest), b_s, input_precision=PRECISION)
    b_s = tl.dot(b_q_rope, tl.trans(b_rope), b_s, input_precision=PRECISION)
    if WHOLE and RISING:
        factor = scale * 1.4426950408889634
        b_new = tl.maximum(b_m, tl.max(b_s, axis=1) * factor)
        b_base = tl.where(b_new == float("-inf"), 0.0, b_new)
        b_p = tl.exp2(b_s * factor - b_base[:, None])
    else:
        b_s, _ = in_log2(b_s, scale, 0.0, False)
        if not WHOLE:
            if not ALIKE:
                b_c, b_nan = without_nan(b_c)
                b_s += b_nan[None, :]
            b_keep = (o_n[None, :] >= b_first[:, None]) & (o_n[None, :] < b_end[:, None])
            b_s = tl.where(b_keep, b_s, float("-inf"))
        b_new = tl.maximum(b_m, tl.max(b_s, axis=1))
        b_base = tl.where(b_new == float("-inf"), 0.0, b_new)
        b_p = tl.exp2(b_s - b_base[:, None])
    b_shrink = tl.exp2(b_m - b_base)
    b_o = tl.dot(b_p.to(b_c.dtype), b_c, b_o * b_shrink[:, None], input_precision=PRECISION)
    return b_o, b_l * b_shrink + tl.sum(b_p, axis=1), b_new


@triton.jit(do_not_specialize=["scale", "Sq", "Sk", "NP", "PAGE", "BITS", "SHARE", "ROWS", "HQ", "NB", "splits"])
def latent_decode_kernel(
    q, q_rope, c, k_rope, table, first, end, o, lse, scale, Sq, Sk, NP, PAGE, BITS, SHARE, ROWS, HQ, NB, splits,
    D: tl.constexpr, DR: tl.constexpr, BR: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, ALIKE: tl.constexpr,
    POWER: tl.constexpr, RISING: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o [splits, NB, Sq, HQ, D] and lse of one split, for BM rows, the heads at each query, and half of the columns.
    SHARE, ROWS: as in flash_decode_kernel."""
    BW: tl.constexpr = D // 2
    pid = tl.program_id(0).to(tl.int64)
    half = (pid % 2).to(tl.int32)  # the two that read the same keys run at the same time
    pid = pid // 2
    NM = (Sq * HQ + BM - 1) // BM
    o_r = (NM - 1 - pid % NM).to(tl.int32) * BM + tl.arange(0, BM)  # the last see most
    i_b = (pid // NM) % NB
    i_s = pid // NM // NB
    p_t = i_b * NP
    row = first_row(table, i_b, Sk, SHARE, ROWS)
    m_r = o_r < Sq * HQ
    p_m = i_b * Sq + o_r // HQ
    p_q = p_m * HQ + o_r % HQ
    b_q = rows_of(q + half * BW, p_q, D, m_r, BW, BW, False)
    b_q_rest = rows_of(q + (1 - half) * BW, p_q, D, m_r, BW, BW, False)
    b_q_rope = rows_of(q_rope, p_q, DR, m_r, DR, BR, False)
    b_first = tl.zeros([BM], dtype=tl.int32) if first is None else tl.load(first + p_m, mask=m_r, other=0)
    b_end = tl.load(end + p_m, mask=m_r, other=0)
    n_first = tl.min(tl.where(m_r, b_first, 2147418112), axis=0)
    start, stop, whole, whole_stop = tiles_seen(b_first, b_end, m_r, BN)
    start, stop, whole, whole_stop = split_range(start, stop, whole, whole_stop, i_s.to(tl.int32), splits, BN)
    b_o = tl.zeros([BM, BW], dtype=tl.float32)
    b_l = tl.zeros([BM], dtype=tl.float32)
    b_m = tl.full([BM], float("-inf"), dtype=tl.float32)
    for at in range(start, stop - (whole_stop - whole), BN):
        n = at + tl.where(at >= whole, whole_stop - whole, 0)
        b_o, b_l, b_m = attend_latent(
            b_o, b_l, b_m, b_q, b_q_rest, b_q_rope, b_first, b_end, c, k_rope, table, p_t, row, half, n, n_first,
            scale, Sk, PAGE, BITS, D, DR, BW, BR, BN, ALIKE, POWER, RISING, False, PRECISION,
        )  # fmt: skip
    for at in range(0, whole_stop - whole, BN):
        n = whole + at
        b_o, b_l, b_m = attend_latent(
            b_o, b_l, b_m, b_q, b_q_rest, b_q_rope, b_first, b_end, c, k_rope, table, p_t, row, half, n, n_first,
            scale, Sk, PAGE, BITS, D, DR, BW, BR, BN, ALIKE, POWER, RISING, True, PRECISION,
        )  # fmt: skip
    b_o, b_lse = settled(b_o, b_l, b_m)
    p_o = i_s * NB * Sq * HQ + p_q
    tl.store(
        o + half * BW + p_o[:, None] * D + tl.arange(0, BW)[None, :], b_o.to(o.dtype.element_ty), mask=m_r[:, None]
    )
    if lse is not None:
        tl.store(lse + p_o, b_lse, mask=m_r & (half == 0))
