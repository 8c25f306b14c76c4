"""Gradient of the WY step of each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from .recompute_w_u import load_lower


@triton.jit
def add_pair_products(
    b, d, x, H, HV, n, D: tl.constexpr, C: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """b[i, j] + <d_i, x_j> over all D columns, of one of HV heads in d and one of H in x.

    Both pointers are at the chunk's first row and at that head.
    """
    o_c = tl.arange(0, C)
    for i_d in range(0, D, BD):
        o_d = i_d + tl.arange(0, BD)[None, :]
        m = (o_c < n)[:, None] & (o_d < D)
        b_d = tl.load(d + o_c[:, None] * (tl.cast(HV, tl.int64) * D) + o_d, mask=m, other=0.0)
        b_x = tl.load(x + o_c[:, None] * (tl.cast(H, tl.int64) * D) + o_d, mask=m, other=0.0)
        b = tl.dot(b_d, tl.trans(b_x), b, input_precision=PRECISION)
    return b


@triton.jit
def transposed_product(
    Ai, d, d_x, beta, g, row_h, row_hv, H, HV, group, n,
    D: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_x = beta 2^g (Ai^T d), summed in order over ``group`` value heads; 0 without d.

    row_h numbers the chunk's first row and its head in d_x, of H heads; row_hv the same for the group's first of HV.
    """
    o_i = tl.arange(0, C)
    stride = tl.cast(HV, tl.int64)
    for i_d in range(0, D, BD):
        o_d = i_d + tl.arange(0, BD)[None, :]
        b_sum = tl.zeros((C, BD), tl.float32)
        if d is not None:
            for i_hv in range(row_hv, row_hv + group):
                b_y = tl.zeros((C, BD), tl.float32)
                for i_c in tl.static_range(0, C, BC):
                    o_j = i_c + tl.arange(0, BC)
                    m_T = (o_j < n)[None, :] & (o_j[None, :] >= o_i[:, None])
                    b_T = tl.load(Ai + i_hv * C + o_j[None, :] * (stride * C) + o_i[:, None], mask=m_T, other=0.0)
                    m_d = (o_j < n)[:, None] & (o_d < D)
                    b_d = tl.load(d + i_hv * D + o_j[:, None] * (stride * D) + o_d, mask=m_d, other=0.0)
                    b_y = tl.dot(b_T, b_d, b_y, input_precision=PRECISION)
                b_rate = tl.load(beta + i_hv + o_i * HV, mask=o_i < n, other=0.0).to(tl.float32)
                if g is not None:
                    b_rate *= tl.exp2(tl.load(g + i_hv + o_i * HV, mask=o_i < n, other=0.0))
                b_sum += b_y * b_rate[:, None]
        p = row_h * D + o_i[:, None] * (tl.cast(H, tl.int64) * D) + o_d
        tl.store(d_x + p, b_sum.to(d_x.dtype.element_ty), mask=(o_i < n)[:, None] & (o_d < D))


@triton.jit
def column_sums(b, Ai, n, HV, C: tl.constexpr):
    """Sum over i of Ai[i, j] b[i, j]. Ai is loaded for each sum rather than kept in registers beside products."""
    b_Ai = load_lower(Ai, tl.cast(HV, tl.int64) * C, n, tl.arange(0, C), C)
    return tl.sum(b * b_Ai.to(tl.float32), axis=0)


@triton.jit
def scalar_gradients(
    d_w, d_u, k, v, beta, Ai, g, d_beta, d_Ai, d_g, row_h, row_hv, H, HV, n, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_Ai = tril(d_w (beta gam k)^T + d_u (beta v)^T), d_beta and d_g of one chunk and value head.

    <k_j, (Ai^T d_w)_j> is the sum over i of Ai[i, j] <d_w_i, k_j>: no product with Ai^T is needed.
    row_h and row_hv number the chunk's first row and its head in tensors of H and of HV heads.
    """
    o_c = tl.arange(0, C)
    Ai += row_hv * C
    b_beta = tl.load(beta + row_hv + o_c * HV, mask=o_c < n, other=0.0).to(tl.float32)
    b = tl.zeros((C, C), tl.float32)
    if d_w is not None:
        b = add_pair_products(b, d_w + row_hv * K, k + row_h * K, H, HV, n, K, C, BK, PRECISION)
        if g is not None:
            b *= tl.exp2(tl.load(g + row_hv + o_c * HV, mask=o_c < n, other=0.0))[None, :]
    if d_g is not None:
        b_t = column_sums(b, Ai, n, HV, C)
        tl.store(d_g + row_hv + o_c * HV, b_t * b_beta * 0.6931471805599453, mask=o_c < n)
    if d_u is not None:
        b = add_pair_products(b, d_u + row_hv * V, v + row_hv * V, HV, HV, n, V, C, BV, PRECISION)
    if d_beta is not None:
        b_t = column_sums(b, Ai, n, HV, C)
        tl.store(d_beta + row_hv + o_c * HV, b_t.to(d_beta.dtype.element_ty), mask=o_c < n)
    if d_Ai is not None:
        b = tl.where(o_c[:, None] >= o_c[None, :], b * b_beta[None, :], 0.0)
        p = o_c[:, None] * (tl.cast(HV, tl.int64) * C) + o_c[None, :]
        tl.store(d_Ai + row_hv * C + p, b.to(d_Ai.dtype.element_ty), mask=(o_c < n)[:, None])


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def recompute_w_u_vjp_kernel(
    d_w, d_u, k, v, beta, Ai, g, d_k, d_v, d_beta, d_Ai, d_g, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One of the 2 HV / H + 1 programs of a chunk and key head.

    For each value head one makes d_Ai, d_beta and d_g, one d_v; the last one makes d_k. They read the same rows at
    the same time, mostly from L2, and need fewer registers than one program that does all.
    """
    pid = tl.program_id(0).to(tl.int64)
    group = HV // H
    i_slot = pid // (2 * HV + H)
    i_h = pid % (2 * HV + H) // (2 * group + 1)
    i_task = (pid % (2 * HV + H) % (2 * group + 1)).to(tl.int32)
    i_n, bos, length, o_t = chunk_rows(i_slot, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    n = length - o_t
    row_h = (bos + o_t) * H + i_h
    row_hv = (bos + o_t) * HV + i_h * group
    if i_task < group:
        if (d_Ai is not None) or (d_beta is not None) or (d_g is not None):
            scalar_gradients(
                d_w, d_u, k, v, beta, Ai, g, d_beta, d_Ai, d_g, row_h, row_hv + i_task, H, HV, n,
                K, V, C, BK, BV, PRECISION,
            )  # fmt: skip
    elif i_task < 2 * group:
        if d_v is not None:
            r = row_hv + i_task - group
            transposed_product(Ai, d_u, d_v, beta, None, r, r, HV, HV, 1, n, V, C, BC, BV, PRECISION)
    else:
        if d_k is not None:
            transposed_product(Ai, d_w, d_k, beta, g, row_h, row_hv, H, HV, group, n, K, C, BC, BK, PRECISION)
