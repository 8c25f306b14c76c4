"""The expression of an edge as a term: what its tree means, without places. Simplified as it is built.

Functions are called as kernels/_maps.py and stages/_maps.py call them; operators stand under their own signs, a
quotient under ``divide`` and a sign under ``negative``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Tensor:
    """An operand, by the name of its port."""

    name: str


@dataclass(frozen=True)
class Scalar:
    """A number of each call: a param, or an expression over params and axes."""

    name: str


@dataclass(frozen=True)
class Apply:
    function: str
    args: "tuple[Term, ...]"


Term = Number | Tensor | Scalar | Apply

ZERO, ONE = Number(0.0), Number(1.0)
OPERATORS = ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=", "&", "|")


def walk(term: Term) -> Iterator[Term]:
    """What a term is made of, each distinct part once, arguments before what is made of them."""
    yield from _walk(term, set())


def _walk(term: Term, seen: set[Term]) -> Iterator[Term]:
    if term in seen:
        return
    seen.add(term)
    for each in term.args if isinstance(term, Apply) else ():
        yield from _walk(each, seen)
    yield term


def tensors(*terms: Term) -> list[str]:
    """Ports that terms read, in order of appearance."""
    return list(dict.fromkeys(part.name for term in terms for part in walk(term) if isinstance(part, Tensor)))


def scalars(*terms: Term) -> list[str]:
    return list(dict.fromkeys(part.name for term in terms for part in walk(term) if isinstance(part, Scalar)))


def is_call(term: Term, function: str) -> bool:
    return isinstance(term, Apply) and term.function == function


def apply(function: str, *args: Term) -> Term:
    """``function(args)``, simplified where the result is exactly the same number."""
    match function, args:
        case "+", (a, b):
            return plus(a, b)
        case "-", (a, b):
            return plus(a, negative(b)) if isinstance(b, Number) else minus(a, b)
        case "*", (a, b):
            return times(a, b)
        case "divide", (a, b):
            return a if b == ONE else Apply("divide", (a, b))
        case "negative", (a,):
            return negative(a)
        case "clamp", (x, low, high):
            return Apply("minimum", (Apply("maximum", (x, low)), high))
    return Apply(function, args)


def plus(a: Term, b: Term) -> Term:
    match a, b:
        case Number(x), Number(y):
            return Number(x + y)
        case (Number(0.0), x) | (x, Number(0.0)):
            return x
        case (Apply("elu", args), Number(1.0)) | (Number(1.0), Apply("elu", args)):
            return Apply("elu_plus_1", args)  # exp(x) below 0, where -1 + exp(x) has lost it
    return Apply("+", (a, b))


def minus(a: Term, b: Term) -> Term:
    return negative(b) if a == ZERO else Apply("-", (a, b))


def negative(a: Term) -> Term:
    match a:
        case Number(value=value):
            return Number(-value)
        case Apply("negative", (inner,)):
            return inner
    return Apply("negative", (a,))


def times(a: Term, b: Term) -> Term:
    match a, b:
        case Number(x), Number(y):
            return Number(x * y)
        case (Number(1.0), x) | (x, Number(1.0)):
            return x
        case (Number(-1.0), x) | (x, Number(-1.0)):
            return negative(x)
        case (Apply("where", (c, x, Number(0.0))), y) | (y, Apply("where", (c, x, Number(0.0)))):
            return Apply("where", (c, times(x, y), ZERO))  # 0 where the branch is not taken, whatever y is there
        case Apply("negative", (x,)), y:
            return negative(times(x, y))
        case x, Apply("negative", (y,)):
            return negative(times(x, y))
    return Apply("*", (a, b))


def power(x: Term, exponent: float) -> Term:
    """x ** exponent: products for a whole exponent, roots for a half."""
    if exponent < 0:
        return apply("divide", ONE, power(x, -exponent))
    if exponent == 0.5:
        return Apply("sqrt", (x,))
    if not float(exponent).is_integer():
        return Apply("power", (x, Number(float(exponent))))
    if exponent == 0:
        return plus(times(ZERO, x), ONE) if not isinstance(x, Number) else ONE
    half = power(x, exponent // 2) if exponent > 1 else ONE
    square = times(half, half)
    return times(square, x) if exponent % 2 else square


def number_text(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else f'float("{value}")'
