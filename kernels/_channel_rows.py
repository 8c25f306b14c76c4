"""Rows of a chunk whose K channels each decay by themselves: how they are loaded, paired and put together.

Pairs of rows are taken apart twice (stages/_channel_decay.py): by halving blocks of rows, down to blocks of BASE rows,
whose pairs are made one row after the other, the rows so far decayed step by step. No exponent is above 0.
"""

import triton
import triton.language as tl


@triton.jit
def load_channels(x, o_r, o_k, stride, n, K: tl.constexpr):
    """Rows o_r and columns o_k of a chunk's x, its rows ``stride`` apart; 0 past its n rows and past K."""
    m = (o_r < n)[:, None] & (o_k < K)[None, :]
    return tl.load(x + o_r[:, None] * stride + o_k[None, :], mask=m, other=0.0)


@triton.jit
def load_rows(x, o_r, o_k, stride, n, K: tl.constexpr):
    """The same; past the n rows the last of them, so that what two rows decay by is at most 0 there too."""
    p = x + tl.minimum(o_r, n - 1)[:, None] * stride + o_k[None, :]
    return tl.load(p, mask=(o_k < K)[None, :], other=0.0)


@triton.jit
def store_channels(x, b_x, o_r, o_k, stride, n, K: tl.constexpr):
    m = (o_r < n)[:, None] & (o_k < K)[None, :]
    tl.store(x + o_r[:, None] * stride + o_k[None, :], b_x.to(x.dtype.element_ty), mask=m)


@triton.jit
def half_pairs(o_i, o_j, S):
    """Pairs of one row in the first and one in the second half of one block of S rows."""
    o_x = o_i ^ o_j
    return (o_x >= S // 2) & (o_x < S)


@triton.jit
def half_factors(b, b_b, o_c, o_k, S, stride, n, K: tl.constexpr):
    """2^(b_i - b_m) for the rows in the second half of each block of S, 2^(b_m - b_j) for those in the first.

    m is the second half's first row; both exponents are at most 0. b_b: rows o_c of b.
    """
    o_m = (o_c & -S) + S // 2
    b_m = load_rows(b, o_m, o_k, stride, n, K)
    return tl.exp2(tl.where((o_c >= o_m)[:, None], b_b - b_m, b_m - b_b))


@triton.jit
def scaled_rows(rows, b_d, COUNT: tl.constexpr):
    """Each of COUNT rows times b_d."""
    scaled = ()
    for j in tl.static_range(COUNT):
        scaled = scaled + (rows[j] * b_d,)
    return scaled


@triton.jit
def stacked(rows, COUNT: tl.constexpr):
    """COUNT tensors of one shape, 2^n of them, as one tensor with a last dimension more."""
    shape: tl.constexpr = rows[0].shape
    for i_l in tl.static_range(COUNT.bit_length() - 1):
        joined = ()
        for j in tl.static_range(COUNT >> (i_l + 1)):
            joined = joined + (tl.join(rows[j], rows[j + (COUNT >> (i_l + 1))]),)
        rows = joined
    return tl.reshape(rows[0], shape + [COUNT])


@triton.jit
def chunk_of_rows(rows, C: tl.constexpr, BASE: tl.constexpr, BK: tl.constexpr):
    """[C, BK] of BASE tiles [C / BASE, BK], the r-th of which has row r of each block."""
    return tl.reshape(tl.permute(stacked(rows, BASE), (0, 2, 1)), [C, BK])
