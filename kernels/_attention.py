"""Tiles of attention: which pairs of a query and a key count, and their scores in powers of two."""

import triton
import triton.language as tl


@triton.jit
def tile_and_head(pid, tiles):
    """(tile, batch and head as one number) of a program, where each head has so many tiles. Heads come in blocks of 8,
    of each block all first tiles, then all second ones: what is longest starts first, and what programs read at the
    same time is of a few heads."""
    block = pid // (tiles * 8) * 8
    wide = tl.minimum(tl.num_programs(0) // tiles - block, 8)
    rest = pid - block * tiles
    return rest // wide, block + rest % wide


@triton.jit
def rows_of(x, o_r, stride, m_r, W: tl.constexpr, BW: tl.constexpr, WHOLE: tl.constexpr):
    """[rows, BW] of W columns from x on, rows o_r of that stride, those of m_r. WHOLE: they all are, and no row is
    masked: in the loop over whole tiles addresses and masks are what instructions go to."""
    o_w = tl.arange(0, BW)
    p_x = x + (o_r[:, None] * stride + o_w[None, :])
    if WHOLE and W == BW:
        b_x = tl.load(p_x)
    elif WHOLE:
        b_x = tl.load(p_x, mask=(o_w < W)[None, :], other=0)
    elif W == BW:
        b_x = tl.load(p_x, mask=m_r[:, None], other=0)
    else:
        b_x = tl.load(p_x, mask=m_r[:, None] & (o_w < W)[None, :], other=0)
    return b_x


@triton.jit
def tiles_seen(b_first, b_end, m_m, BN: tl.constexpr):
    """In tiles of BN keys: the first one that any of the queries sees, the end of those, and the first and the end of
    those that all see whole (equal: none). m_m: which of them are queries at all."""
    m_some = m_m & (b_first < b_end)
    start = tl.min(tl.where(m_some, b_first, 2147418112), axis=0) // BN * BN
    stop = (tl.max(tl.where(m_some, b_end, 0), axis=0) + BN - 1) // BN * BN
    whole = (tl.max(tl.where(m_m, b_first, 0), axis=0) + BN - 1) // BN * BN
    whole_stop = tl.min(tl.where(m_m, b_end, 2147418112), axis=0) // BN * BN
    none = whole >= whole_stop
    return start, stop, tl.where(none, stop, whole), tl.where(none, stop, whole_stop)


@triton.jit
def seen_by(first, end, p_m, o_m, Sq, BN: tl.constexpr):
    """Of the queries o_m, of which those from Sq on see nothing: (first key, end of keys, of each), and tiles_seen."""
    m_m = o_m < Sq
    b_first = tl.load(first + p_m + o_m, mask=m_m, other=0)
    b_end = tl.load(end + p_m + o_m, mask=m_m, other=0)
    start, stop, whole, whole_stop = tiles_seen(b_first, b_end, m_m, BN)
    return b_first, b_end, start, stop, whole, whole_stop


@triton.jit
def seen_from(first, end, p_m, n, Sq, BM: tl.constexpr, BN: tl.constexpr):
    """Of the BN keys from n on, in tiles of BM queries: the first one in which any of them is seen, the end of those,
    and the first and the end of those whose queries see all of them (equal: none). first and end never fall: each is a
    count of queries up to a value, of every 64th first, and then among the 64 where it ends."""
    BS: tl.constexpr = 1024
    b_start = tl.zeros([BS], dtype=tl.int32)
    b_stop = tl.zeros([BS], dtype=tl.int32)
    b_whole = tl.zeros([BS], dtype=tl.int32)
    b_whole_stop = tl.zeros([BS], dtype=tl.int32)
    for m in range(0, Sq, 64 * BS):
        o_m = m + 64 * tl.arange(0, BS)
        b_first = tl.load(first + p_m + o_m, mask=o_m < Sq, other=2147418112)
        b_end = tl.load(end + p_m + o_m, mask=o_m < Sq, other=2147418112)
        b_start += (b_end <= n).to(tl.int32)
        b_stop += (b_first < n + BN).to(tl.int32)
        b_whole += (b_end < n + BN).to(tl.int32)
        b_whole_stop += (b_first <= n).to(tl.int32)
    start = counted(end, p_m, tl.sum(b_start, axis=0), n + 1, Sq) // BM * BM
    stop = (counted(first, p_m, tl.sum(b_stop, axis=0), n + BN, Sq) + BM - 1) // BM * BM
    whole = (counted(end, p_m, tl.sum(b_whole, axis=0), n + BN, Sq) + BM - 1) // BM * BM
    whole_stop = counted(first, p_m, tl.sum(b_whole_stop, axis=0), n + 1, Sq) // BM * BM
    none = whole >= whole_stop
    return start, stop, tl.where(none, stop, whole), tl.where(none, stop, whole_stop)


@triton.jit
def counted(x, p_m, count, limit, Sq):
    """How many of the queries have an x below the limit, which never falls; count: of every 64th of them."""
    o_m = (count - 1) * 64 + tl.arange(0, 64)
    b_x = tl.load(x + p_m + o_m, mask=(count > 0) & (o_m < Sq), other=2147418112)
    return tl.maximum(count - 1, 0) * 64 + tl.sum((b_x < limit).to(tl.int32), axis=0)


@triton.jit
def between(o_n, b_first, b_end):
    """Which keys stand from first on and before end, in one comparison."""
    return (o_n - b_first).to(tl.uint32) < tl.maximum(b_end - b_first, 0).to(tl.uint32)


@triton.jit
def tanh(x):
    """By exp2, which is 0 or inf where x is large: the quotient is then 1 or -1."""
    return 1.0 - 2.0 / (1.0 + tl.exp2(x * 2.8853900817779268))


@triton.jit
def in_log2(b_s, scale, softcap, CAPPED: tl.constexpr):
    """(scores in powers of two, tanh of the capped ones or the scores) of products b_s of queries and keys."""
    LOG2E: tl.constexpr = 1.4426950408889634
    b_t = b_s
    if CAPPED:
        b_t = tanh(b_s * (scale / softcap))
        b_s = b_t * (softcap * LOG2E)
    else:
        b_s = b_s * (scale * LOG2E)
    return b_s, b_t


@triton.jit
def without_nan(b_x):
    """(the rows of b_x with 0 for what is not finite, nan for each row that has such a number and 0 for the others).
    The second, added to what a query keeps of a row, makes that query nan; other queries' weights of 0 meet a 0."""
    b_finite = tl.abs(b_x.to(tl.float32)) < float("inf")
    b_bad = tl.max(tl.where(b_finite, 0, 1), axis=1)
    return tl.where(b_finite, b_x, 0.0), tl.where(b_bad > 0, float("nan"), 0.0)


@triton.jit
def not_finite(b_x):
    """Whether any number of the tile is."""
    return tl.sum(tl.sum(b_x * 0.0, axis=1), axis=0) != 0.0


@triton.jit
def with_sink(b_o, b_l, b_m, b_sink):
    """The running sums and maximum with one more score that has no value; b_sink in powers of two."""
    b_new = tl.maximum(b_m, b_sink)
    b_shrink = tl.exp2(b_m - b_new)
    return b_o * b_shrink[:, None], b_l * b_shrink + tl.exp2(b_sink - b_new), b_new


@triton.jit
def settled(b_o, b_l, b_m):
    """(output, log-sum-exp) of running sums: 0 and -inf for a query that sees nothing."""
    b_none = b_l == 0.0
    b_l = tl.where(b_none, 1.0, b_l)
    b_lse = (b_m + tl.log2(b_l)) * 0.6931471805599453
    return b_o / b_l[:, None], tl.where(b_none, float("-inf"), b_lse)
