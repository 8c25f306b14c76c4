"""Rows of a cache in eight bits."""

import triton
import triton.language as tl


@triton.jit
def from_e4m3(b_x):
    """float32 of fp8 (e4m3) given as bytes. Its bits are those of a float16 of 1/256 of the number; no device is needed
    that knows fp8."""
    b_x = b_x.to(tl.int16)
    b_size = b_x & 127
    b_y = (((b_x & 128) << 8) | (b_size << 7)).to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    return tl.where(b_size == 127, float("nan"), b_y)


@triton.jit
def dequantized(b_x, b_scale, dtype: tl.constexpr):
    """Numbers in eight bits, int8 or the bytes of fp8, times the scales beside them, rounded to dtype; without scales
    the numbers as they are."""
    if b_scale is None:
        b_y = b_x
    else:
        if b_x.dtype == tl.uint8:
            b_f = from_e4m3(b_x)
        else:
            b_f = b_x.to(tl.float32)
        b_y = (b_f * b_scale).to(dtype)
    return b_y
