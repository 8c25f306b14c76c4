"""Gradient of the WY step of each chunk."""

import triton
import triton.language as tl

from ._chunks import chunk_rows
from .recompute_w_u import load_lower, load_rate


@triton.jit
def pair_products(
    d, x, H, HV, i_h, i_hv, row, n, D: tl.constexpr, C: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """<d_i, x_j> over all D columns, [C, C]: d at head i_hv of HV, x at head i_h of H; 0 past the n valid rows."""
    o_c = tl.arange(0, C)
    b = tl.zeros((C, C), tl.float32)
    for i_d in range(0, D, BD):
        o_d = i_d + tl.arange(0, BD)[None, :]
        m = (o_c < n)[:, None] & (o_d < D)
        b_d = tl.load(d + ((row + o_c) * HV + i_hv)[:, None] * D + o_d, mask=m, other=0.0)
        b_x = tl.load(x + ((row + o_c) * H + i_h)[:, None] * D + o_d, mask=m, other=0.0)
        b = tl.dot(b_d, tl.trans(b_x), b, input_precision=PRECISION)
    return b


@triton.jit
def transposed_product(
    Ai, d, d_x, beta, g, H, HV, i_h, row, n,
    D: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_x = beta 2^g (Ai^T d), at head i_h of H: the sum, in order, over its HV / H value heads. 0 without d."""
    o_i = tl.arange(0, C)
    for i_d in range(0, D, BD):
        o_d = i_d + tl.arange(0, BD)[None, :]
        b_sum = tl.zeros((C, BD), tl.float32)
        if d is not None:
            for i_g in range(HV // H):
                i_hv = i_h * (HV // H) + i_g
                b_y = tl.zeros((C, BD), tl.float32)
                for i_c in tl.static_range(0, C, BC):
                    o_j = i_c + tl.arange(0, BC)
                    p_j = (row + o_j) * HV + i_hv
                    m_T = (o_j < n)[None, :] & (o_j[None, :] >= o_i[:, None])
                    b_T = tl.load(Ai + p_j[None, :] * C + o_i[:, None], mask=m_T, other=0.0)
                    b_d = tl.load(d + p_j[:, None] * D + o_d, mask=(o_j < n)[:, None] & (o_d < D), other=0.0)
                    b_y = tl.dot(b_T, b_d, b_y, input_precision=PRECISION)
                b_sum += b_y * load_rate(beta, g, (row + o_i) * HV + i_hv, o_i < n)[:, None]
        p = ((row + o_i) * H + i_h)[:, None] * D + o_d
        tl.store(d_x + p, b_sum.to(d_x.dtype.element_ty), mask=(o_i < n)[:, None] & (o_d < D))


@triton.jit
def scalar_gradients(
    d_w, d_u, k, v, beta, Ai, g, d_beta, d_Ai, d_g, H, HV, i_h, i_hv, row, n, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """d_Ai = tril(d_w (beta gam k)^T + d_u (beta v)^T), d_beta and d_g of one chunk and value head.

    <k_j, (Ai^T d_w)_j> is the sum over i of Ai[i, j] <d_w_i, k_j>: no product with Ai^T is needed.
    """
    o_c = tl.arange(0, C)
    m_c = o_c < n
    p_c = (row + o_c) * HV + i_hv
    b_Ai = load_lower(Ai, p_c, n, o_c, C).to(tl.float32)
    b_beta = load_rate(beta, None, p_c, m_c)
    b_dAi = tl.zeros((C, C), tl.float32)
    b_dbeta = tl.zeros((C,), tl.float32)
    b_dg = tl.zeros((C,), tl.float32)
    if d_w is not None:
        b = pair_products(d_w, k, H, HV, i_h, i_hv, row, n, K, C, BK, PRECISION)
        b_dbeta = tl.sum(b * b_Ai, axis=0)
        if g is not None:
            b_gam = tl.exp2(tl.load(g + p_c, mask=m_c, other=0.0))
            b *= b_gam[None, :]
            b_dbeta *= b_gam
        b_dAi = b * b_beta[None, :]
        b_dg = b_dbeta * b_beta * 0.6931471805599453
    if d_u is not None:
        b = pair_products(d_u, v, HV, HV, i_hv, i_hv, row, n, V, C, BV, PRECISION)
        b_dbeta += tl.sum(b * b_Ai, axis=0)
        b_dAi += b * b_beta[None, :]
    if d_Ai is not None:
        b_dAi = tl.where(o_c[:, None] >= o_c[None, :], b_dAi, 0.0)
        tl.store(d_Ai + p_c[:, None] * C + o_c[None, :], b_dAi.to(d_Ai.dtype.element_ty), mask=m_c[:, None])
    if d_beta is not None:
        tl.store(d_beta + p_c, b_dbeta.to(d_beta.dtype.element_ty), mask=m_c)
    if d_g is not None:
        tl.store(d_g + p_c, b_dg, mask=m_c)


@triton.jit(do_not_specialize=["T", "NT", "H", "HV"])
def recompute_w_u_vjp_kernel(
    d_w, d_u, k, v, beta, Ai, g, d_k, d_v, d_beta, d_Ai, d_g, cu_seqlens, chunk_table, T, NT, H, HV,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """d_k of one key head and the gradients of its value heads, in one chunk."""
    pid = tl.program_id(0).to(tl.int64)
    i_h = pid % H
    i_n, bos, length, o_t = chunk_rows(pid // H, cu_seqlens, chunk_table, T, NT, C)
    if i_n < 0:
        return
    row = bos + o_t
    n = length - o_t
    for i_g in range(HV // H):
        i_hv = i_h * (HV // H) + i_g
        if (d_Ai is not None) or (d_beta is not None) or (d_g is not None):
            scalar_gradients(
                d_w, d_u, k, v, beta, Ai, g, d_beta, d_Ai, d_g, H, HV, i_h, i_hv, row, n, K, V, C, BK, BV, PRECISION
            )  # fmt: skip
        if d_v is not None:
            transposed_product(Ai, d_u, d_v, beta, None, HV, HV, i_hv, row, n, V, C, BC, BV, PRECISION)
    if d_k is not None:
        transposed_product(Ai, d_w, d_k, beta, g, H, HV, i_h, row, n, K, C, BC, BK, PRECISION)
