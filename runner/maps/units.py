"""Units of expressions: what algebra keeps exactly. Everything else drops a unit, and is refused.

    exp(g)              a log decay per token to the decay itself
    log(d)              and back
    c g, g c, g / c     c at least 0: a decay to the power of c
    g + g               one decay after another
    minimum, maximum    of a log decay and a number that is at most 0
"""

from collections.abc import Mapping

from .ranges import Range, range_of
from .terms import Apply, Tensor, Term, tensors

LOG, LINEAR = "log_decay/ln/token", "decay/linear/token"

FREE = {LOG: "<= 0", "log_decay/ln/slope": "<= 0", LINEAR: "0..1", "state/sequence_start": None}
"""Units that say no more of a tensor than this law does. An expression of operands without a unit takes such a unit
from the port that reads it, if its range keeps the law: any numbers at most 0 are log decays of some recurrence.
The others (sums over a chunk, Gram matrices, ...) say where numbers come from, which no expression can bring about."""


class UnitDropped(Exception):
    """An operand's unit that an expression does not keep."""

    def __init__(self, operand: str):
        super().__init__(operand)
        self.operand = operand


def unit_of(term: Term, units: Mapping[str, str | None], ranges: Mapping[str, Range]) -> str | None:
    """The unit of a term's values. Raises UnitDropped."""
    carrying = [name for name in tensors(term) if units[name]]
    if not carrying:
        return None
    if isinstance(term, Tensor):
        return units[term.name]
    if not isinstance(term, Apply):
        return None
    args = [(unit_of(each, units, ranges), range_of(each, ranges)) for each in term.args]
    if unit := kept(term.function, args):
        return unit
    raise UnitDropped(carrying[0])


def kept(function: str, args: list[tuple[str | None, Range]]) -> str | None:
    match function, args:
        case "exp", [(unit, _)] if unit == LOG:
            return LINEAR
        case "log", [(unit, _)] if unit == LINEAR:
            return LOG
        case "*", [(None, factor), (unit, _)] | [(unit, _), (None, factor)] if unit == LOG and factor.low >= 0:
            return LOG
        case "divide", [(unit, _), (None, divisor)] if unit == LOG and divisor.low >= 0:
            return LOG
        case "+", [(unit, _), (other, _)] if unit == other == LOG:
            return LOG
        case "minimum" | "maximum", [(None, bound), (unit, _)] | [(unit, _), (None, bound)]:
            return LOG if unit == LOG and bound.high <= 0 else None
    return None
