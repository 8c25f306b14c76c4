"""The softplus to float32's last digits."""

import triton
import triton.language as tl

from ._exp import exp_exact


@triton.jit
def softplus(x):
    """log(1 + exp(x)) = max(x, 0) + log1p(e), e = exp(-|x|) in 0..1; log1p(e) = 2 atanh(e / (2 + e)) as a series."""
    e = exp_exact(-tl.abs(x))
    s = tl.div_rn(e, 2.0 + e)
    z = s * s
    series = 1.0 / 11 + z * (1.0 / 13 + z * (1.0 / 15))
    series = 1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * series))
    return tl.where(x > 0, x, 0.0) + 2.0 * s * (1.0 + z * (1.0 / 3 + z * series))
