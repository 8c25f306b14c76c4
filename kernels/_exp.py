"""The exponential to float32's last digits."""

import triton
import triton.language as tl


@triton.jit
def exp_exact(x):
    """exp(x), with the part of x log2(e) put back that its rounding loses; 0 below -200; nan stays nan."""
    x = tl.where(x < -200.0, -200.0, x)
    y = x * 1.4426950408889634
    lost = tl.fma(x, 1.4426950408889634, -y) + x * 1.925963033500e-8
    return tl.exp2(y) * (1.0 + lost * 0.6931471805599453)
