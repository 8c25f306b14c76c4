"""Log decay of a chunk's rows: a gate's chunk sums, a fixed slope, both or neither."""

import triton
import triton.language as tl


@triton.jit
def chunk_decay(g, g_gamma, i_h, bos, o_t, length, HV, C: tl.constexpr):
    """(base-2 log decay at each row [C], 0 past the end unless a slope runs on; the same at the last valid row)."""
    o_c = tl.arange(0, C)
    n = tl.minimum(length - o_t, C)
    b_g = tl.zeros([C], dtype=tl.float32)
    b_gl = tl.full([], 0.0, tl.float32)
    if g is not None:
        p_g = g + (bos + o_t) * HV + i_h
        b_g += tl.load(p_g + o_c * HV, mask=o_c < n, other=0.0)
        b_gl += tl.load(p_g + (n - 1) * HV)
    if g_gamma is not None:
        b_slope = tl.load(g_gamma + i_h) * 1.4426950408889634
        b_g += b_slope * (o_c + 1)
        b_gl += b_slope * n
    return b_g, b_gl


@triton.jit
def to_chunk_end(b_g, b_gl, n, C: tl.constexpr):
    """2^(g_C - g_i) for the chunk's n valid rows, else 0."""
    return tl.exp2(tl.where(tl.arange(0, C) < n, b_gl - b_g, float("-inf")))


@triton.jit
def pair_decay(b_g, n, C: tl.constexpr):
    """E[i, j] = 2^(g_i - g_j) for j <= i < n, else 0: [C, C]. Masked before exp2."""
    o_c = tl.arange(0, C)
    m = (o_c[:, None] >= o_c[None, :]) & (o_c < n)[:, None]
    return tl.exp2(tl.where(m, b_g[:, None] - b_g[None, :], float("-inf")))


@triton.jit
def pair_decay_transposed(b_g, n, C: tl.constexpr):
    """pair_decay with rows j and columns i, made in that order."""
    o_c = tl.arange(0, C)
    m = (o_c[None, :] >= o_c[:, None]) & (o_c < n)[None, :]
    return tl.exp2(tl.where(m, b_g[None, :] - b_g[:, None], float("-inf")))
