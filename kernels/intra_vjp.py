"""Gradient of the products between a chunk's rows under a decay per channel, and of the rows decayed to its ends."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from ._channel_rows import block_factors, block_mask, load_channels, store_channels


@triton.jit
def cast_dot(b_x, b_y, PRECISION: tl.constexpr):
    """b_x b_y in b_y's dtype. A cotangent b_x may leave fp16's range: tf32 has its digits and float32's range."""
    if b_y.dtype == tl.float16:
        return tl.dot(b_x, b_y.to(tl.float32), input_precision="tf32")
    return tl.dot(b_x.to(b_y.dtype), b_y, input_precision=PRECISION)


@triton.jit
def scores_vjp(
    b_dq, b_dk, b_db, d_A, b, b_q, b_k, b_b, scale, o_k, HV, n,
    K: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds what A_qk's cotangent gives below the diagonal. Pointers are at the chunk's first row and its value head."""
    o_c = tl.arange(0, C)
    for i_l in range(LEVELS):
        b_f = block_factors(b, b_b, o_c, o_k, 2 << i_l, HV * K, n, K)
        b_kf = (b_k * b_f).to(b_k.dtype)
        b_qf = (b_q * b_f).to(b_k.dtype)
        m_S = block_mask(o_c[:, None], o_c[None, :], 2 << i_l) & (o_c < n)[:, None]
        b_d = tl.load(d_A + o_c[:, None] * (HV * C) + o_c[None, :], mask=m_S, other=0.0)
        b_y = scale * tl.dot(b_d, b_kf, input_precision=PRECISION)
        b_dq += b_f * b_y
        b_db += b_qf * b_y
        m_S = block_mask(o_c[None, :], o_c[:, None], 2 << i_l) & (o_c < n)[None, :]
        b_d = tl.load(d_A + o_c[None, :] * (HV * C) + o_c[:, None], mask=m_S, other=0.0)
        b_y = scale * tl.dot(b_d, b_qf, input_precision=PRECISION)
        b_dk += b_f * b_y
        b_db -= b_kf * b_y
    return b_dq, b_dk, b_db


@triton.jit
def gram_vjp(
    b_dk, b_db, b_dbeta, d_A, beta, b, b_k, b_b, o_k, HV, n,
    K: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds what A_kk's cotangent gives. Pointers are at the chunk's first row and its value head."""
    o_c = tl.arange(0, C)
    b_beta = tl.load(beta + o_c * HV, mask=o_c < n, other=0.0).to(tl.float32)
    for i_l in range(LEVELS):
        b_f = block_factors(b, b_b, o_c, o_k, 2 << i_l, HV * K, n, K)
        b_kf = (b_k * b_f).to(b_k.dtype)
        m_S = block_mask(o_c[:, None], o_c[None, :], 2 << i_l) & (o_c < n)[:, None]
        b_d = tl.load(d_A + o_c[:, None] * (HV * C) + o_c[None, :], mask=m_S, other=0.0)
        b_dbeta += tl.sum(b_kf * cast_dot(b_d, b_kf, PRECISION), axis=1)
        b_y = cast_dot(b_d * b_beta[:, None], b_kf, PRECISION)
        b_dk += b_f * b_y
        b_db += b_kf * b_y
        m_S = block_mask(o_c[None, :], o_c[:, None], 2 << i_l) & (o_c < n)[None, :]
        b_d = tl.load(d_A + o_c[None, :] * (HV * C) + o_c[:, None], mask=m_S, other=0.0)
        b_y = cast_dot(b_d * b_beta[None, :], b_kf, PRECISION)
        b_dk += b_f * b_y
        b_db -= b_kf * b_y
    return b_dk, b_db, b_dbeta


@triton.jit(do_not_specialize=["scale", "T", "NT", "R", "H", "HV"])
def intra_vjp_kernel(
    d_qk, d_kk, d_qg, d_kg, d_kb, d_b_end, q, k, beta, b, d_q, d_k, d_beta, d_b, scale, cu_seqlens, chunk_table,
    T, NT, R, H, HV,
    K: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """BK channels of one chunk and key head: d_q, d_k summed over its value heads, d_b and d_beta of each.

    For each size of blocks, with the factors f as forward, fq = f q and fk = f k rounded, and P = scale d_qk in the
    blocks' lower left quarters: d_q = f (P fk), d_k = f (P^T fq), d_b = fq (P fk) - fk (P^T fq). For A_kk likewise, fk
    in both roles and P = beta d_kk, rounded alike in both, so that what a pair adds and takes cancels.
    d_beta [K tiles, R rows, HV] takes the tile's share. What a row reads from the chunk's start counts for d_b, what it
    leaves at the chunk's end against it, and for it at the last valid row. A row with itself would do both.
    """
    LN2: tl.constexpr = 0.6931471805599453
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
    m_c = o_c < n
    o_k = i_k.to(tl.int32) * BK + tl.arange(0, BK)
    b_q = load_channels(q + row_h * K, o_c, o_k, H * K, n, K)
    b_k = load_channels(k + row_h * K, o_c, o_k, H * K, n, K)
    b_dq = tl.zeros([C, BK], dtype=tl.float32)
    b_dk = tl.zeros([C, BK], dtype=tl.float32)

    for i_g in range(HV // H):
        r = row * HV + i_h * (HV // H) + i_g
        p_b = b + r * K
        b_b = load_channels(p_b, o_c, o_k, HV * K, n, K)
        b_db = tl.zeros([C, BK], dtype=tl.float32)
        if d_qk is not None:
            b_own = scale * tl.load(d_qk + r * C + o_c * (HV * C + 1), mask=m_c, other=0.0).to(tl.float32)
            b_dq += b_own[:, None] * b_k
            b_dk += b_own[:, None] * b_q
            b_dq, b_dk, b_db = scores_vjp(
                b_dq, b_dk, b_db, d_qk + r * C, p_b, b_q, b_k, b_b, scale, o_k, HV, n, K, C, LEVELS, PRECISION
            )  # fmt: skip
        b_dbeta = tl.zeros([C], dtype=tl.float32)
        if d_kk is not None:
            b_dk, b_db, b_dbeta = gram_vjp(
                b_dk, b_db, b_dbeta, d_kk + r * C, beta + r, p_b, b_k, b_b, o_k, HV, n, K, C, LEVELS, PRECISION
            )  # fmt: skip
        if d_qg is not None:
            b_y = load_channels(d_qg + r * K, o_c, o_k, HV * K, n, K)
            b_y = scale * tl.exp2(b_b) * b_y
            b_dq += b_y
            b_db += b_q * b_y
        if d_kb is not None:
            b_y = load_channels(d_kb + r * K, o_c, o_k, HV * K, n, K)
            b_y = tl.exp2(b_b) * b_y
            b_dk += b_y
            b_db += b_k * b_y
        if d_kg is not None:
            b_last = tl.load(p_b + (n - 1) * (HV * K) + o_k, mask=o_k < K, other=0.0)
            b_ga = tl.exp2(tl.where(m_c[:, None], b_last[None, :] - b_b, float("-inf")))
            b_y = b_ga * load_channels(d_kg + r * K, o_c, o_k, HV * K, n, K)
            b_dk += b_y
            b_y = tl.where((o_c < n - 1)[:, None], b_k * b_y, 0.0)
            b_db += tl.where((o_c == n - 1)[:, None], tl.sum(b_y, axis=0)[None, :], -b_y)
        if d_b is not None:
            b_db *= LN2
            if d_b_end is not None:
                p_end = d_b_end + (i_slot * HV + i_h * (HV // H) + i_g) * K + o_k
                b_end = tl.load(p_end, mask=o_k < K, other=0.0)
                b_db += tl.where((o_c == n - 1)[:, None], b_end[None, :], 0.0)
            store_channels(d_b + r * K, b_db, o_c, o_k, HV * K, n, K)
        if d_beta is not None:
            tl.store(d_beta + i_k * R * HV + r + o_c * HV, b_dbeta, mask=m_c)

    if d_q is not None:
        store_channels(d_q + row_h * K, b_dq, o_c, o_k, H * K, n, K)
    if d_k is not None:
        store_channels(d_k + row_h * K, b_dk, o_c, o_k, H * K, n, K)
