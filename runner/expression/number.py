"""The value of an expression over plain numbers: params, constraints, flops."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping

from ..diagnostics.hints import nearest
from .parse import COMPARISONS
from .tree import BeyondLimit, Binary, Call, ExpressionError, Name, Node, Number, Unary, UnknownName, children, walk

MAX_EXPONENT = 64
MAX_BITS = 512


def _ceil_div(a, b):
    return -(-a // b)


def _is_power_of_two(x):
    return x >= 1 and x == int(x) and int(x) & (int(x) - 1) == 0


FUNCTIONS: Mapping[str, tuple[Callable, int, int | None]] = {
    "min": (min, 2, None),
    "max": (max, 2, None),
    "abs": (abs, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "exp": (math.exp, 1, 1),
    "log": (math.log, 1, 1),
    "log2": (math.log2, 1, 1),
    "ceil_div": (_ceil_div, 2, 2),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "is_power_of_two": (_is_power_of_two, 1, 1),
}
"""Function name -> (its Python function, least and greatest number of arguments)."""

_OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "&": operator.and_, "|": operator.or_,
}  # fmt: skip


def evaluate_number(node: Node, names: Mapping[str, int | float]) -> int | float | bool:
    """The value over ``names``; integers stay exact integers. Raises ExpressionError at the part that fails."""
    match node:
        case Number(value=value):
            return value
        case Name(id=name):
            if name not in names:
                raise UnknownName(f"unknown name {name!r}", node.start, node.end, hint(name, names))
            return names[name]
        case Unary(operand=operand):
            return -_real(evaluate_number(operand, names), operand)
        case Binary(op=op, left=left, right=right):
            return binary_number(node, op, evaluate_number(left, names), evaluate_number(right, names))
        case Call(args=args):
            function = _function(node)
            values = [_real(evaluate_number(arg, names), arg) for arg in args]
            return guarded(node, lambda: function(*values))
    raise TypeError(f"not a node: {node!r}")


def number_problems(node: Node, names: Iterable[str]) -> list[ExpressionError]:
    """What can be said before there are numbers: names and functions that do not exist, wrong argument counts,
    comparisons in the place of numbers, products of matrices."""
    names, found = set(names), []
    for part in walk(node):
        found += kind_problems(part)
        if isinstance(part, Name) and part.id not in names:
            found.append(UnknownName(f"unknown name {part.id!r}", part.start, part.end, hint(part.id, names)))
        if isinstance(part, Call):
            try:
                _function(part)
            except ExpressionError as error:
                found.append(error)
    return found


def help_for(error: ExpressionError, names: str | None) -> str | None:
    """names: those that there are, for one that is unknown."""
    return error.help or (names if isinstance(error, UnknownName) else None)


def kind_problems(node: Node) -> list[ExpressionError]:
    """Operands of a node that are comparisons where numbers belong, or the other way round."""
    if isinstance(node, Binary) and node.op == "@":
        return [matrix_product(node)]
    if isinstance(node, Binary) and node.op in "&|":
        return [no_condition(node.op, each) for each in (node.left, node.right) if not is_condition(each)]
    if isinstance(node, Binary) and node.op in ("==", "!="):
        return []
    return [no_number(each) for each in children(node) if is_condition(each)]


def is_condition(node: Node) -> bool:
    """Whether it is true or false, and no number."""
    if isinstance(node, Binary):
        return node.op in (*COMPARISONS, "&", "|")
    return isinstance(node, Call) and node.function.id == "is_power_of_two"


def binary_number(node: Binary, op: str, left, right):
    """``left op right`` on numbers, with the limits of untrusted text; errors stand at ``node``."""
    if op == "@":
        raise matrix_product(node)
    if op in "&|":
        for value, part in ((left, node.left), (right, node.right)):
            if not isinstance(value, bool):
                raise no_condition(op, part)
    elif op not in ("==", "!="):
        _real(left, node.left), _real(right, node.right)
    if op == "**" and isinstance(left, int) and isinstance(right, int):
        check_exponent(right, node.right)
    return guarded(node, lambda: _OPERATORS[op](left, right))


def check_exponent(exponent: float, part: Node) -> None:
    if abs(exponent) > MAX_EXPONENT:
        raise BeyondLimit(f"exponent {exponent} is beyond {MAX_EXPONENT}", part.start, part.end)


def guarded(node: Node, compute: Callable):
    """``compute()``; an arithmetic failure or a result that is no usable number becomes an error at ``node``."""
    try:
        value = compute()
    except ZeroDivisionError:
        raise ExpressionError("division by zero", node.start, node.end) from None
    except OverflowError:
        raise ExpressionError("the result is too large", node.start, node.end) from None
    except ValueError:
        raise ExpressionError("not defined for this argument", node.start, node.end) from None
    if isinstance(value, complex) or isinstance(value, float) and math.isnan(value):
        raise ExpressionError("the result is not a real number", node.start, node.end)
    too_large = math.isinf(value) if isinstance(value, float) else int(value).bit_length() > MAX_BITS
    if too_large:
        raise ExpressionError("the result is too large", node.start, node.end)
    return value


def in_64_bits(x: float) -> float:
    """Neither a kernel nor PyTorch takes a whole number beyond 64 bits."""
    return float(x) if isinstance(x, int) and x.bit_length() > 63 else x


def hint(name: str, known: Iterable[str]) -> str | None:
    """``did you mean X?``; of names that differ in case alone, the one whose case is nearer."""
    close = nearest(name, known)
    if close is None:
        return None
    twins = sorted(each for each in known if each.lower() == close.lower())
    return f"did you mean {max(twins, key=lambda each: sum(letter in each for letter in name))}?"


def _function(node: Call) -> Callable:
    name = node.function
    if name.id not in FUNCTIONS:
        help = hint(name.id, FUNCTIONS) or f"functions are {', '.join(FUNCTIONS)}"
        raise UnknownName(f"no function {name.id!r}", name.start, name.end, help)
    function, least, most = FUNCTIONS[name.id]
    if node.axis is not None:
        raise ExpressionError(f"{name.id} of numbers takes no axis=", node.axis.start, node.axis.end)
    if len(node.args) < least or (most is not None and len(node.args) > most):
        wanted = f"{least}" if most == least else f"at least {least}"
        plural = "" if wanted == "1" else "s"
        raise ExpressionError(f"{name.id} takes {wanted} argument{plural}, got {len(node.args)}", node.start, node.end)
    return function


def matrix_product(node: Node) -> ExpressionError:
    return ExpressionError("'@' joins tensors, these are numbers", node.start, node.end)


def no_condition(op: str, part: Node) -> ExpressionError:
    help = "put each comparison in parentheses: (a < b) & (c < d)"
    return ExpressionError(f"{op!r} joins comparisons, this is a number", part.start, part.end, help)


def no_number(part: Node) -> ExpressionError:
    return ExpressionError("a comparison where a number is needed", part.start, part.end)


def _real(value, part: Node):
    if isinstance(value, bool):
        raise no_number(part)
    return value
