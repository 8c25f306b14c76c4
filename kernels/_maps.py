"""The functions of expressions in edges on tiles, to float32's last digits, and where a tile lies.

The runner (runner/maps/) writes each expression out as a kernel over these.
"""

import triton
import triton.language as tl

from ._exp import exp_exact
from ._softplus import softplus as _softplus


@triton.jit
def exp(x):
    """exp(x); infinite from where float32 ends."""
    return tl.where(x > 88.73, float("inf"), exp_exact(x))


@triton.jit
def exp2(x):
    return tl.exp2(x)


@triton.jit
def expm1(x):
    """exp(x) - 1; between -0.5 and 0.5 by its series, where the difference would lose digits."""
    s = 1.0 / 39916800 + x * (1.0 / 479001600)
    s = 1.0 / 40320 + x * (1.0 / 362880 + x * (1.0 / 3628800 + x * s))
    s = 1.0 / 24 + x * (1.0 / 120 + x * (1.0 / 720 + x * (1.0 / 5040 + x * s)))
    near = x + x * x * (0.5 + x * (1.0 / 6 + x * s))
    return tl.where(tl.abs(x) < 0.5, near, exp_exact(x) - 1.0)


@triton.jit
def log(x):
    return tl.log(x)


@triton.jit
def log1p(x):
    """log(1 + x); between -0.5 and 1 as 2 atanh(x / (2 + x)) by its series."""
    s = tl.div_rn(x, 2.0 + x)
    z = s * s
    series = 1.0 / 11 + z * (1.0 / 13 + z * (1.0 / 15 + z * (1.0 / 17)))
    series = 1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * series))
    near = 2.0 * s * (1.0 + z * (1.0 / 3 + z * series))
    return tl.where((x > -0.5) & (x < 1.0), near, tl.log(1.0 + x))


@triton.jit
def log2(x):
    return tl.log2(x)


@triton.jit
def sqrt(x):
    return tl.sqrt_rn(x)


@triton.jit
def abs(x):
    return tl.abs(x)


@triton.jit
def tanh(x):
    """-e / (2 + e), e = exp(-2 |x|) - 1, with the sign of x: near 0 nothing cancels."""
    e = expm1(-2.0 * tl.abs(x))
    y = tl.div_rn(-e, 2.0 + e)
    return tl.where(x < 0, -y, y)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)); exp(-|x|) never overflows."""
    e = exp_exact(-tl.abs(x))
    return tl.div_rn(tl.where(x >= 0, 1.0, e), 1.0 + e)


@triton.jit
def softplus(x):
    return _softplus(x)


@triton.jit
def logsigmoid(x):
    return -_softplus(-x)


@triton.jit
def silu(x):
    return x * sigmoid(x)


@triton.jit
def relu(x):
    return tl.where(x < 0, 0.0, x)


@triton.jit
def elu(x):
    return tl.where(x > 0, x, expm1(tl.where(x > 0, 0.0, x)))


@triton.jit
def elu_plus_1(x):
    return tl.where(x > 0, x + 1.0, exp_exact(tl.where(x > 0, 0.0, x)))


@triton.jit
def power(x, exponent):
    """x ** exponent for x >= 0, nan below; 0 for x below float32's least normal number.

    x = 2^k m, m near 1, so that what log2 rounds away of m is small; what the products round away is put back.
    """
    bits = x.to(tl.int32, bitcast=True)
    k = (bits >> 23) - 127
    m = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    high = m > 1.4142135
    k = tl.where(high, k + 1, k).to(tl.float32)
    m = tl.where(high, 0.5 * m, m)
    whole = exponent * k
    part = exponent * tl.log2(m)
    y = whole + part
    lost = tl.fma(x * 0.0 + exponent, k, -whole) + (part - (y - whole))
    found = tl.exp2(y) * (1.0 + lost * 0.6931471805599453)
    return tl.where(x < 1.1754944e-38, tl.where(x < 0, float("nan"), 0.0), found)


@triton.jit
def divide(a, b):
    return tl.div_rn(a, b)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def where(condition, a, b):
    return tl.where(condition, a, b)


@triton.jit
def full(value, like):
    return value


@triton.jit
def tile(cols, BR: tl.constexpr, BC: tl.constexpr):
    """(rows [BR, 1], columns [1, BC]) of this program's tile of a matrix with that many columns, as int64."""
    pid = tl.program_id(0).to(tl.int64)
    n_c = tl.cdiv(cols, BC)
    o_r = (pid // n_c) * BR + tl.arange(0, BR)
    o_c = (pid % n_c) * BC + tl.arange(0, BC)
    return o_r[:, None], o_c[None, :]


@triton.jit
def row_tile(BR: tl.constexpr):
    """The rows [BR, 1] of a program that takes every column of its rows."""
    return (tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR))[:, None]


@triton.jit
def before_end(o, ends, N, inner, length):
    """Whether the numbers at places o lie before the end of the last sequence.

    ends: the first row of each sequence and the end, along an axis of that length; None for a plain batch.
    inner: numbers that each of its places holds.
    """
    if ends is None:
        return o >= 0
    else:
        return (o // inner) % length < tl.load(ends + N)
