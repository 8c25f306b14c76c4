"""The gradient of a term as terms: the chain rule from the result back, each part visited once."""

import math
from collections.abc import Callable, Mapping

from .terms import ONE, ZERO, Apply, Number, Tensor, Term, apply, tensors, walk

LN_2 = Number(math.log(2.0))


def gradients(term: Term, d: Term) -> dict[str, Term]:
    """Operand -> what flows into it where d flows into the term; 0 d, which is still a tensor, where nothing does."""
    incoming: dict[Term, Term] = {term: d}
    for part in reversed(list(walk(term))):
        if isinstance(part, Apply) and part in incoming:
            for argument, flow in flows(part, incoming[part]):
                incoming[argument] = apply("+", incoming[argument], flow) if argument in incoming else flow
    return {name: incoming.get(Tensor(name), Apply("*", (ZERO, d))) for name in tensors(term)}


def flows(part: Apply, d: Term) -> list[tuple[Term, Term]]:
    """(argument, what flows into it) of one part."""
    args = part.args
    match part.function:
        case "+":
            return [(args[0], d), (args[1], d)]
        case "-":
            return [(args[0], d), (args[1], apply("negative", d))]
        case "*":
            return [(args[0], apply("*", d, args[1])), (args[1], apply("*", d, args[0]))]
        case "divide":
            share = apply("divide", d, args[1])
            return [(args[0], share), (args[1], apply("negative", apply("*", share, part)))]
        case "negative":
            return [(args[0], apply("negative", d))]
        case "where":
            return [(args[1], apply("where", args[0], d, ZERO)), (args[2], apply("where", args[0], ZERO, d))]
        case "minimum" | "maximum":
            return extremum(part, d)
        case "power":
            slope = apply("*", args[1], Apply("power", (args[0], Number(args[1].value - 1))))
            return [(args[0], apply("*", d, slope))]
        case name if name in SLOPES:
            return [(args[0], apply("*", d, SLOPES[name](args[0], part)))]
    return []  # a comparison


def extremum(part: Apply, d: Term) -> list[tuple[Term, Term]]:
    """All to the one that was taken; of two tensors that are equal, half to each."""
    a, b = part.args
    sign = "<" if part.function == "minimum" else ">"
    if not tensors(a) or not tensors(b):
        x, bound = (a, b) if tensors(a) else (b, a)
        return [(x, apply("where", Apply(f"{sign}=", (x, bound)), d, ZERO))]
    half = Apply("where", (Apply("==", (a, b)), Number(0.5), ZERO))
    return [(x, apply("*", d, Apply("where", (Apply(sign, (x, other)), ONE, half)))) for x, other in ((a, b), (b, a))]


def _logistic_slope(x: Term) -> Term:
    return apply("*", Apply("sigmoid", (x,)), Apply("sigmoid", (apply("negative", x),)))


def _tanh_slope(x: Term, y: Term) -> Term:
    """4 sigmoid(2 x) sigmoid(-2 x): 1 - tanh(x)^2 has no digits left where tanh is near 1."""
    return apply("*", Number(4.0), _logistic_slope(apply("*", Number(2.0), x)))


def _silu_slope(x: Term, y: Term) -> Term:
    """sigmoid(x) (1 + x sigmoid(-x))."""
    other = apply("*", x, Apply("sigmoid", (apply("negative", x),)))
    return apply("*", Apply("sigmoid", (x,)), apply("+", ONE, other))


def _step(x: Term, above: Term, below: Term) -> Term:
    return Apply("where", (Apply(">", (x, ZERO)), above, below))


SLOPES: Mapping[str, Callable[[Term, Term], Term]] = {
    "exp": lambda x, y: y,
    "exp2": lambda x, y: apply("*", LN_2, y),
    "expm1": lambda x, y: Apply("exp", (x,)),
    "log": lambda x, y: apply("divide", ONE, x),
    "log1p": lambda x, y: apply("divide", ONE, apply("+", ONE, x)),
    "log2": lambda x, y: apply("divide", ONE, apply("*", LN_2, x)),
    "sqrt": lambda x, y: apply("divide", Number(0.5), y),
    "abs": lambda x, y: _step(x, ONE, Apply("where", (Apply("<", (x, ZERO)), Number(-1.0), ZERO))),
    "tanh": _tanh_slope,
    "sigmoid": lambda x, y: _logistic_slope(x),
    "logsigmoid": lambda x, y: Apply("sigmoid", (apply("negative", x),)),
    "softplus": lambda x, y: Apply("sigmoid", (x,)),
    "silu": _silu_slope,
    "relu": lambda x, y: _step(x, ONE, ZERO),
    "elu": lambda x, y: Apply("exp", (Apply("minimum", (x, ZERO)),)),
    "elu_plus_1": lambda x, y: Apply("exp", (Apply("minimum", (x, ZERO)),)),
}
"""Function -> its slope at x, where y is its value there. Written so that nothing overflows and nothing cancels."""
