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


@triton.jit
def log1p_ratio(e):
    """log1p(e) / e for e in 0..1, 1 at 0: the polynomial of degree 8 of least relative error, 3.3e-8."""
    p = tl.fma(e, 0.005364826414734125, -0.03006580099463463)
    p = tl.fma(e, p, 0.07920455187559128)
    p = tl.fma(e, p, -0.13753803074359894)
    p = tl.fma(e, p, 0.1915365606546402)
    p = tl.fma(e, p, -0.24857163429260254)
    p = tl.fma(e, p, 0.3332132399082184)
    p = tl.fma(e, p, -0.49999648332595825)
    return tl.fma(e, p, 1.0)
