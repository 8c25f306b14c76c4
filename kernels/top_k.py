"""The places of the largest numbers of each row."""

import triton
import triton.language as tl


@triton.jit
def in_order(b_x):
    """32 bits without a sign that rise as the float32 numbers do: both zeros alike, nan above all."""
    b_bits = (b_x + 0.0).to(tl.int32, bitcast=True)
    b_bits = tl.where(b_x != b_x, 2147483647, b_bits)
    return tl.where(b_bits < 0, ~b_bits, b_bits | -2147483648).to(tl.uint32, bitcast=True)


@triton.jit
def digit(x, S, above, need, SHIFT: tl.constexpr, BITS: tl.constexpr, BS: tl.constexpr):
    """(BITS bits from SHIFT on of the need-th largest number among those whose bits before these are above; how many of
    the numbers with just these bits are needed then). 0 where there are not so many."""
    BINS: tl.constexpr = 1 << BITS
    b_count = tl.zeros([BINS], dtype=tl.int32)
    for s in range(0, S, BS):
        o_s = s + tl.arange(0, BS)
        b_x = tl.load(x + o_s, mask=o_s < S, other=float("-inf"))
        b_key = in_order(b_x) >> SHIFT
        m_s = (b_x != float("-inf")) & ((b_key >> BITS).to(tl.int32) == above)
        b_count += tl.histogram((b_key & (BINS - 1)).to(tl.int32), BINS, mask=m_s)
    b_larger = tl.sum(b_count, axis=0) - tl.cumsum(b_count, axis=0)
    m_found = (b_larger < need) & (b_larger + b_count >= need)
    found = tl.sum(tl.where(m_found, tl.arange(0, BINS), 0), axis=0)
    return found, need - tl.sum(tl.where(m_found, b_larger, 0), axis=0)


@triton.jit(do_not_specialize=["S", "TOP"])
def top_k_kernel(x, places, count, S, TOP, BS: tl.constexpr):
    """places [rows, TOP] and count [rows] of one row of x [rows, S]."""
    i_r = tl.program_id(0).to(tl.int64)
    x += i_r * S
    # the TOP-th largest number, from its first bits on
    high, need = digit(x, S, 0, TOP, 21, 11, BS)
    middle, need = digit(x, S, high, need, 10, 11, BS)
    above = (high << 11) | middle
    low, need = digit(x, S, above, need, 0, 10, BS)
    least = ((above << 10) | low).to(tl.uint32, bitcast=True)
    taken, alike = 0, 0
    for s in range(0, S, BS):
        o_s = s + tl.arange(0, BS)
        b_x = tl.load(x + o_s, mask=o_s < S, other=float("-inf"))
        b_key = in_order(b_x)
        m_s = b_x != float("-inf")
        b_alike = (m_s & (b_key == least)).to(tl.int32)
        m_first = (b_alike > 0) & (alike + tl.cumsum(b_alike, axis=0) <= need)
        b_taken = (m_first | (m_s & (b_key > least))).to(tl.int32)
        if places is not None:
            tl.store(places + i_r * TOP + taken + tl.cumsum(b_taken, axis=0) - 1, o_s, mask=b_taken > 0)
        taken += tl.sum(b_taken, axis=0)
        alike += tl.sum(b_alike, axis=0)
    if places is not None:
        for s in range(taken, TOP, BS):
            o_s = s + tl.arange(0, BS)
            tl.store(places + i_r * TOP + o_s, -1, mask=o_s < TOP)
    if count is not None:
        tl.store(count + i_r, taken)
