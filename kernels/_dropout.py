"""Which weights dropout keeps, in the bits of stages/_dropout.py."""

import triton
import triton.language as tl


@triton.jit
def mixed(x):
    """A bijection of 32 bits."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0xD35A2D97
    return x ^ (x >> 15)


@triton.jit
def head_words(seed_low, seed_high, head):
    """Two words of Philox-4x32-10 at a head's number."""
    c_head = head.to(tl.uint32)
    c_none = c_head & 0
    k_low, k_high = seed_low.to(tl.uint32, bitcast=True), seed_high.to(tl.uint32, bitcast=True)
    w_0, w_1, _, _ = tl.philox_impl(c_head, c_none, c_none, c_none, k_low, k_high)
    return w_0, w_1


@triton.jit
def query_words(w_0, w_1, batch, row):
    """Of each query, what its keys are mixed with: at first, and on the way."""
    b_batch = batch.to(tl.uint32)
    b_r = mixed(row.to(tl.uint32) ^ mixed(b_batch ^ w_0))
    return b_r, b_r ^ mixed(b_batch ^ w_1)


@triton.jit
def kept(b_r, b_c, key, threshold):
    """Whether the weights of these queries at these keys are kept."""
    b_u = key.to(tl.uint32) ^ b_r
    b_u = (b_u ^ (b_u >> 16)) * 0x21F0AAAD
    b_u = (b_u ^ (b_u >> 15) ^ b_c) * 0xD35A2D97
    return b_u >= threshold.to(tl.uint32, bitcast=True)


@triton.jit
def places(sequence, start, own, i_b, p_m, m_m, first_batch):
    """Of queries at p_m: (the number of each one's sequence, its place in it, the sequence's first key)."""
    b_row = tl.load(own + p_m, mask=m_m, other=0)
    b_start = b_row * 0
    b_batch = first_batch + i_b
    if start is not None:
        b_start = tl.load(start + p_m, mask=m_m, other=0)
    if sequence is not None:
        b_batch = first_batch + tl.load(sequence + p_m, mask=m_m, other=0)
    return b_batch, b_row - b_start, b_start
