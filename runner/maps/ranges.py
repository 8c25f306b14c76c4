"""The range of a term's values from the laws of its operands: interval analysis."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ...stages import _laws, _maps
from ...stages._laws import INF, Law
from .terms import Apply, Number, Tensor, Term


@dataclass(frozen=True)
class Range:
    """low <= x <= high; open_low: low itself is not reached."""

    low: float = -INF
    high: float = INF
    open_low: bool = False

    @property
    def law(self) -> Law | None:
        """The law that says it, as far as one can."""
        low, high = bound_text(self.low, down=True), bound_text(self.high, down=False)
        if self.low > -INF and self.high < INF:
            return _laws.parse(f"{low}..{high}")
        if self.low > -INF:
            return _laws.parse(f"{'>' if self.open_low and exact(self.low) else '>='} {low}")
        return _laws.parse(f"<= {high}") if self.high < INF else None


def exact(x: float) -> bool:
    """Whether bf16 and fp16 have the number: then no rounding crosses it."""
    wide = torch.tensor(x, dtype=torch.float64)
    return all(wide.to(io).double().item() == x for io in (torch.bfloat16, torch.float16))


def bound_text(x: float, down: bool) -> str:
    """A bound that every dtype keeps: one that bf16 has not is moved outwards by bf16's last place."""
    if math.isinf(x):
        return ""
    if not exact(x):
        x += (-1 if down else 1) * abs(x) * 2**-7
        x = float(f"{x:.6g}")
    return str(int(x)) if x == int(x) and abs(x) < 1e15 else repr(x)


def of_laws(laws: Sequence[Law]) -> Range:
    """What the laws of a tensor say together."""
    found = Range()
    for law in laws:
        each = of_law(law)
        lower = greatest(found, each)
        found = Range(lower.low, min(found.high, each.high), lower.open_low)
    return found


def of_law(law: Law) -> Range:
    if law.kind == "interval":
        return Range(law.low, law.high, law.open_low)
    return Range(-1.0, 1.0) if law.kind == "unit_norm" else Range(high=0.0)  # sums of log decays, and slopes


def range_of(term: Term, operands: Mapping[str, Range]) -> Range:
    """The range of a number; a comparison's is never asked for."""
    match term:
        case Number(value=value):
            return Range(value, value)
        case Tensor(name=name):
            return operands[name]
        case Apply(function="*", args=(a, b)) if a == b:
            x = absolute(range_of(a, operands))
            return Range(product(x.low, x.low), product(x.high, x.high), x.open_low)
        case Apply(function="where", args=(_, a, b)):
            return union(range_of(a, operands), range_of(b, operands))
        case Apply(function="power", args=(x, Number(value=exponent))):
            base = greatest(range_of(x, operands), Range(0.0))
            return Range(base.low**exponent, base.high**exponent, base.open_low)
        case Apply(function=function, args=args) if function in RULES:
            return RULES[function](*(range_of(each, operands) for each in args))
        case Apply(function=function, args=(x,)) if function in RISING:
            return rising(function, range_of(x, operands))
    return Range()


def product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def add(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high, a.open_low or b.open_low)


def negate(a: Range) -> Range:
    return Range(-a.high, -a.low)


def multiply(a: Range, b: Range) -> Range:
    ends = [product(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    positive = a.low >= 0 and b.low >= 0
    return Range(min(ends), max(ends), positive and a.open_low and b.open_low)


def divide(a: Range, b: Range) -> Range:
    if not (b.low > 0 or b.low == 0 and b.open_low):
        return negate(divide(a, negate(b))) if b.high < 0 else Range()
    turned = Range(1 / b.high if b.high < INF else 0.0, 1 / b.low if b.low else INF, True)
    return multiply(a, turned)


def absolute(a: Range) -> Range:
    if a.low >= 0:
        return a
    return Range(0.0 if a.high > 0 else -a.high, max(-a.low, a.high))


def union(a: Range, b: Range) -> Range:
    lower = a if a.low < b.low or (a.low == b.low and not a.open_low) else b
    return Range(lower.low, max(a.high, b.high), lower.open_low)


def least(a: Range, b: Range) -> Range:
    return Range(union(a, b).low, min(a.high, b.high), union(a, b).open_low)


def greatest(a: Range, b: Range) -> Range:
    upper = a if a.low > b.low or (a.low == b.low and a.open_low) else b
    return Range(upper.low, max(a.high, b.high), upper.open_low)


RULES: Mapping[str, Callable[..., Range]] = {
    "+": add, "-": lambda a, b: add(a, negate(b)), "*": multiply, "divide": divide, "negative": negate,
    "abs": absolute, "minimum": least, "maximum": greatest, "relu": lambda x: greatest(x, Range(0.0, 0.0)),
    "silu": lambda x: Range(0.0 if x.low >= 0 else -0.28125, max(x.high, 0.0)),
}  # fmt: skip

RISING = {
    "exp": True, "exp2": True, "elu_plus_1": True, "softplus": True, "sigmoid": True, "expm1": True, "elu": True,
    "tanh": True, "logsigmoid": False, "log": False, "log1p": False, "log2": False, "sqrt": False,
}  # fmt: skip
"""Functions that never fall -> whether the lowest value is approached and not reached."""


def rising(function: str, x: Range) -> Range:
    low, high = (getattr(_maps, function)(torch.tensor(end, dtype=torch.float64)).item() for end in (x.low, x.high))
    bottom = RISING[function] and x.low == -INF
    return Range(-INF if math.isnan(low) else low, INF if math.isnan(high) else high, bottom or x.open_low)
