"""Log decay of a chunk's rows: a gate's chunk sums, a fixed slope, both or neither."""

import triton
import triton.language as tl


@triton.jit
def row_decay(g, g_gamma, i_h, row, o_r, n, HV):
    """Base-2 log decay at rows o_r of the chunk that begins at ``row``; past its n rows 0, unless a slope runs on."""
    b_g = o_r.to(tl.float32) * 0.0
    if g is not None:
        b_g += tl.load(g + row * HV + i_h + o_r * HV, mask=o_r < n, other=0.0)
    if g_gamma is not None:
        b_g += tl.load(g_gamma + i_h) * 1.4426950408889634 * (o_r + 1)
    return b_g


@triton.jit
def chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C: tl.constexpr):
    """(row_decay of a chunk's C rows, the same at its last valid row)."""
    n = tl.minimum(length - o_t, C)
    b_g = row_decay(g, g_gamma, i_h, bos + o_t, tl.arange(0, C), n, HV)
    b_gl = tl.full([], 0.0, tl.float32)
    if g is not None:
        b_gl += tl.load(g + (bos + o_t + n - 1) * HV + i_h)
    if g_gamma is not None:
        b_gl += tl.load(g_gamma + i_h) * 1.4426950408889634 * n
    return b_g, b_gl


@triton.jit
def to_chunk_end(b_g, b_gl, n, C: tl.constexpr):
    """2^(g_C - g_i) for the chunk's n valid rows, else 0."""
    return tl.exp2(tl.where(tl.arange(0, C) < n, b_gl - b_g, float("-inf")))


@triton.jit
def pair_decay(b_gi, b_gj, o_i, o_j, n):
    """E[i, j] = 2^(g_i - g_j) for rows j <= i < n of the chunk, else 0. Masked before exp2."""
    m = (o_i[:, None] >= o_j[None, :]) & (o_i < n)[:, None]
    return tl.exp2(tl.where(m, b_gi[:, None] - b_gj[None, :], float("-inf")))


@triton.jit
def pair_decay_transposed(b_gj, b_gi, o_j, o_i, n):
    """E[i, j] as pair_decay has it, j along the rows and i along the columns."""
    m = (o_i[None, :] >= o_j[:, None]) & (o_i < n)[None, :]
    return tl.exp2(tl.where(m, b_gi[None, :] - b_gj[:, None], float("-inf")))
