"""Gradient of the products between a chunk's rows under a decay per channel, and of the rows decayed to its ends."""

import triton
import triton.language as tl

from ._channel_rows import (
    chunk_of_rows,
    half_factors,
    half_pairs,
    load_channels,
    load_rows,
    scaled_rows,
    store_channels,
)
from ._chunks import chunk_rows


@triton.jit
def cast_dot(b_x, b_y, PRECISION: tl.constexpr):
    """b_x b_y in b_y's dtype. A cotangent b_x may leave fp16's range: tf32 has its digits and float32's range."""
    if b_y.dtype == tl.float16:
        return tl.dot(b_x, b_y.to(tl.float32), input_precision="tf32")
    return tl.dot(b_x.to(b_y.dtype), b_y, input_precision=PRECISION)


@triton.jit
def weighted(p, m, rows, COUNT: tl.constexpr):
    """The first COUNT rows, each times the number at its place of p; m: where there is one."""
    b_y = tl.zeros_like(rows[0])
    for j in tl.static_range(COUNT):
        b_y += tl.load(p + j, mask=m, other=0.0).to(tl.float32)[:, None] * rows[j]
    return b_y


@triton.jit
def spread(b_x, p, m, COUNT: tl.constexpr):
    """b_x times each of the first COUNT numbers of p; m: where there are any."""
    rows = ()
    for j in tl.static_range(COUNT):
        rows = rows + (tl.load(p + j, mask=m, other=0.0).to(tl.float32)[:, None] * b_x,)
    return rows


@triton.jit
def added_rows(rows, more, COUNT: tl.constexpr, ALL: tl.constexpr):
    """ALL rows, COUNT of more added to the first of them."""
    added = ()
    for j in tl.static_range(ALL):
        if j < COUNT:
            added = added + (rows[j] + more[j],)
        else:
            added = added + (rows[j],)
    return added


@triton.jit
def decayed_back(rows, b_d, COUNT: tl.constexpr, ALL: tl.constexpr):
    """ALL rows, the first COUNT of them times b_d."""
    decayed = ()
    for j in tl.static_range(ALL):
        if j < COUNT:
            decayed = decayed + (rows[j] * b_d,)
        else:
            decayed = decayed + (rows[j],)
    return decayed


@triton.jit
def read_in_blocks(
    d_qk, d_kk, k, b, scale, o_k, H, HV, n,
    K: tl.constexpr, C: tl.constexpr, BASE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """What the rows of a block give to those that read them: (d_q, d_k without beta, each row's step of decay)."""
    o_n = tl.arange(0, C // BASE) * BASE
    zero = tl.zeros([C // BASE, BK], dtype=tl.float32)
    b_last = load_rows(b, o_n, o_k, HV * K, n, K)
    keys = (load_rows(k, o_n, o_k, H * K, n, K).to(tl.float32),)
    decays, dq, dk = (zero,), (zero,), (zero,)
    for i in tl.static_range(1, BASE):
        o_i = o_n + i
        b_b = load_rows(b, o_i, o_k, HV * K, n, K)
        b_d = tl.exp2(b_b - b_last)
        b_last = b_b
        keys, decays = scaled_rows(keys, b_d, i), decays + (b_d,)
        p = o_i * (HV * C) + o_n
        if d_qk is not None:
            dq = dq + (scale * weighted(d_qk + p, o_i < n, keys, i),)
        if d_kk is not None:
            dk = dk + (weighted(d_kk + p, o_i < n, keys, i),)
        keys = keys + (load_rows(k, o_i, o_k, H * K, n, K).to(tl.float32),)
    return dq, dk, decays


@triton.jit
def written_in_blocks(
    d_qk, d_kk, q, k, beta, decays, scale, o_k, H, HV, n,
    K: tl.constexpr, C: tl.constexpr, BASE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """What the rows of a block get from those that read them, from the last row back."""
    o_n = tl.arange(0, C // BASE) * BASE
    rows = ()
    for _ in tl.static_range(BASE):
        rows = rows + (tl.zeros([C // BASE, BK], dtype=tl.float32),)
    for i in tl.static_range(BASE - 1, -1, -1):
        o_i = o_n + i
        if i < BASE - 1:
            rows = decayed_back(rows, decays[i + 1], i + 1, BASE)
        p = o_i * (HV * C) + o_n
        if d_qk is not None:
            b_q = scale * load_rows(q, o_i, o_k, H * K, n, K)
            rows = added_rows(rows, spread(b_q, d_qk + p, o_i < n, i), i, BASE)
        if d_kk is not None:
            b_beta = tl.load(beta + o_i * HV, mask=o_i < n, other=0.0).to(tl.float32)
            b_k = b_beta[:, None] * load_rows(k, o_i, o_k, H * K, n, K)
            rows = added_rows(rows, spread(b_k, d_kk + p, o_i < n, i), i, BASE)
    return rows


@triton.jit
def both_ways(d_A, HV, n, C: tl.constexpr):
    """[C, C]: a cotangent's pairs below the diagonal, and the same above it."""
    o_c = tl.arange(0, C)
    m = (o_c[:, None] > o_c[None, :]) & (o_c < n)[:, None]
    b_d = tl.load(d_A + o_c[:, None] * (HV * C) + o_c[None, :], mask=m, other=0.0)
    return b_d + tl.trans(b_d)


@triton.jit
def of_value_head(
    b_dq, b_dk, d_qk, d_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, d_beta, d_b, scale, r, r_end, o_k, H, HV, n,
    K: tl.constexpr, C: tl.constexpr, BASE: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds a value head's share to d_q and d_k, and stores its d_b and d_beta.

    r: the chunk's first row of the value head, r_end its place in d_b_end. q and k are at the key head's first row.
    """
    LN2: tl.constexpr = 0.6931471805599453
    d_qk = None if d_qk is None else d_qk + r * C
    d_kk = None if d_kk is None else d_kk + r * C
    d_qg = None if d_qg is None else d_qg + r * K
    d_kg = None if d_kg is None else d_kg + r * K
    d_kb = None if d_kb is None else d_kb + r * K
    d_b = None if d_b is None else d_b + r * K
    beta = None if beta is None else beta + r
    d_beta = None if d_beta is None else d_beta + r
    b += r * K
    o_c = tl.arange(0, C)
    m_c = o_c < n
    b_db = tl.zeros([C, BK], dtype=tl.float32)
    b_dbeta = tl.zeros([C], dtype=tl.float32)
    b_b = load_rows(b, o_c, o_k, HV * K, n, K)
    b_k = load_rows(k, o_c, o_k, H * K, n, K)
    if (d_qk is not None) or (d_qg is not None):
        b_q = load_rows(q, o_c, o_k, H * K, n, K)
    if (d_qk is not None) or (d_kk is not None):
        dq, dk, decays = read_in_blocks(d_qk, d_kk, k, b, scale, o_k, H, HV, n, K, C, BASE, BK)
        written = written_in_blocks(d_qk, d_kk, q, k, beta, decays, scale, o_k, H, HV, n, K, C, BASE, BK)
        b_y = chunk_of_rows(written, C, BASE, BK)
        b_dk += b_y
        b_db -= b_k * b_y
    if d_qk is not None:
        b_y = chunk_of_rows(dq, C, BASE, BK)
        b_own = scale * tl.load(d_qk + o_c * (HV * C + 1), mask=m_c, other=0.0).to(tl.float32)
        b_dq += b_y + b_own[:, None] * b_k
        b_dk += b_own[:, None] * b_q
        b_db += b_q * b_y
        b_qk = both_ways(d_qk, HV, n, C)
    if d_kk is not None:
        b_y = chunk_of_rows(dk, C, BASE, BK)
        b_beta = tl.load(beta + o_c * HV, mask=m_c, other=0.0).to(tl.float32)
        b_dbeta += tl.sum(b_k * b_y, axis=1)
        b_y *= b_beta[:, None]
        b_dk += b_y
        b_db += b_k * b_y
        b_kk = both_ways(d_kk, HV, n, C)
    if (d_qk is not None) or (d_kk is not None):
        for i_l in range(LEVELS):
            S = C >> i_l
            b_f = half_factors(b, b_b, o_c, o_k, S, HV * K, n, K)
            m_S = half_pairs(o_c[:, None], o_c[None, :], S)
            m_r = ((o_c & (S // 2)) > 0)[:, None]
            b_r = tl.where(m_r, 1.0, 0.0)
            b_sign = tl.where(m_r, 1.0, -1.0)
            if d_qk is not None:
                b_x = (tl.where(m_r, b_q, b_k) * b_f).to(b_k.dtype)
                b_y = scale * tl.dot(tl.where(m_S, b_qk, 0.0).to(b_qk.dtype), b_x, input_precision=PRECISION)
                b_db += (b_sign * b_x) * b_y
                b_y *= b_f
                b_dq += b_r * b_y
                b_dk += (1.0 - b_r) * b_y
            if d_kk is not None:
                b_kf = b_k * b_f
                b_w = tl.where(m_r, b_beta[:, None], 1.0)
                b_x = (b_w * b_kf).to(b_k.dtype)
                b_y = cast_dot(tl.where(m_S, b_kk, 0.0), b_x, PRECISION)
                b_db += (b_sign * b_x) * b_y
                b_dbeta += tl.sum(b_r * b_kf * b_y, axis=1)
                b_dk += b_w * b_f * b_y
    if d_qg is not None:
        b_y = scale * tl.exp2(b_b) * load_channels(d_qg, o_c, o_k, HV * K, n, K)
        b_dq += b_y
        b_db += b_q * b_y
    if d_kb is not None:
        b_y = tl.exp2(b_b) * load_channels(d_kb, o_c, o_k, HV * K, n, K)
        b_dk += b_y
        b_db += b_k * b_y
    if d_kg is not None:
        b_last = tl.load(b + (n - 1) * (HV * K) + o_k, mask=o_k < K, other=0.0)
        b_y = tl.exp2(b_last[None, :] - b_b) * load_channels(d_kg, o_c, o_k, HV * K, n, K)
        b_dk += b_y
        b_y = tl.where((o_c < n - 1)[:, None], b_k * b_y, 0.0)
        b_db += tl.where((o_c == n - 1)[:, None], tl.sum(b_y, axis=0)[None, :], -b_y)
    if d_b is not None:
        b_db *= LN2
        if d_b_end is not None:
            b_end = tl.load(d_b_end + r_end * K + o_k, mask=o_k < K, other=0.0)
            b_db += tl.where((o_c == n - 1)[:, None], b_end[None, :], 0.0)
        store_channels(d_b, b_db, o_c, o_k, HV * K, n, K)
    if d_beta is not None:
        tl.store(d_beta + o_c * HV, b_dbeta, mask=m_c)
    return b_dq, b_dk


@triton.jit(do_not_specialize=["scale", "T", "NT", "R", "H", "HV"])
def intra_vjp_kernel(
    d_qk, d_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, d_q, d_k, d_beta, d_b, scale, cu_seqlens, chunk_table,
    T, NT, R, H, HV,
    K: tl.constexpr, C: tl.constexpr, BASE: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, GROUPED: tl.constexpr,
):  # fmt: skip
    """BK channels of one chunk and key head: d_q, d_k summed over its value heads, d_b and d_beta of each.

    In blocks of BASE rows, pair by pair in float32. For each larger size of blocks one product: x = f q in the second
    halves, f k in the first, rounded, f the factors as forward, P = scale d_qk both ways, restricted to pairs across
    halves: d_q or d_k = f (P x), d_b = x (P x) in the second halves, -x (P x) in the first. For A_kk likewise, with
    x = f beta k in the second halves. Each pair adds to d_b and takes from it a product of the same rounded factors.
    d_beta [K tiles, R rows, HV] takes the tile's share. What a row reads from the chunk's start counts for d_b, what it
    leaves at the chunk's end against it, and for it at the last valid row. A row with itself would do both.
    GROUPED: more than one value head a key head. Without a loop over them, no address waits in a register.
    """
    NK: tl.constexpr = (K + BK - 1) // BK
    pid = tl.program_id(0).to(tl.int64)
    i_k = pid % NK
    i_h = (pid // NK) % H
    i_slot = pid // NK // H
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = tl.minimum(length - o_t, C)
    row = bos + o_t
    row_h = row * H + i_h
    o_c = tl.arange(0, C)
    o_k = i_k.to(tl.int32) * BK + tl.arange(0, BK)
    b_dq = tl.zeros([C, BK], dtype=tl.float32)
    b_dk = tl.zeros([C, BK], dtype=tl.float32)
    q += row_h * K
    k += row_h * K
    d_beta = None if d_beta is None else d_beta + i_k * R * HV
    if GROUPED:
        for i_hv in tl.range(i_h * (HV // H), (i_h + 1) * (HV // H), disable_licm=True):
            b_dq, b_dk = of_value_head(
                b_dq, b_dk, d_qk, d_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, d_beta, d_b, scale,
                row * HV + i_hv, i_slot * HV + i_hv, o_k, H, HV, n, K, C, BASE, LEVELS, BK, PRECISION,
            )  # fmt: skip
    else:
        b_dq, b_dk = of_value_head(
            b_dq, b_dk, d_qk, d_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, d_beta, d_b, scale,
            row_h, i_slot * H + i_h, o_k, H, HV, n, K, C, BASE, LEVELS, BK, PRECISION,
        )  # fmt: skip
    if d_q is not None:
        store_channels(d_q + row_h * K, b_dq, o_c, o_k, H * K, n, K)
    if d_k is not None:
        store_channels(d_k + row_h * K, b_dk, o_c, o_k, H * K, n, K)
