"""Named axes for every value of a definition, before there is any number.

A value has inner axes only: lanes (``B N T``) and heads (``H HV HQ G``) are what a definition is mapped over.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..expression import Binary, Call, ExpressionError, Name, Node, Number, Unary, UnknownName, hint
from .functions import DENSE, FUNCTIONS

LANES = ("B", "N", "T")
HEADS = ("HV", "HQ", "H", "G")
"""The first of these that an input has is the head that a step runs for; the others are read at hv // (HV / H)."""

Axes = tuple[str, ...]


def head_of(axes: Collection[str]) -> str | None:
    """The head that a definition runs for."""
    return next((axis for axis in HEADS if axis in axes), None)


@dataclass(frozen=True)
class Type:
    """axes: inner axes. boolean: a comparison. token: differs from token to token."""

    axes: Axes = ()
    boolean: bool = False
    token: bool = False


class Poisoned(Exception):
    """A value whose own line is already reported."""


def inner(axes: Iterable[str]) -> Axes:
    return tuple(axis for axis in axes if axis not in LANES and axis not in HEADS)


def shown(axes: Axes) -> str:
    return f"({', '.join(axes)})" if axes else "a scalar"


@dataclass
class Scope:
    """What a line may read. values: name -> Type, None for one whose line is wrong.

    dense: types a call of a function of the dense form (dense_types.py); None in a step, which has none of them.
    """

    inputs: Mapping[str, Type]
    params: Collection[str]
    axes: Collection[str]
    absent: Collection[str]
    later: Collection[str] = ()
    states: Collection[str] = ()
    dense: "Callable[[Call, Scope], Type] | None" = None
    dropped: dict[str, str] = field(default_factory=dict)
    values: dict[str, Type | None] = field(default_factory=dict)

    def type_of(self, node: Name) -> Type:
        name = node.id
        if name in self.values:
            if self.values[name] is None:
                raise Poisoned
            return self.values[name]
        if name in self.inputs and name not in self.absent:
            return self.inputs[name]
        if name in self.params or (name in self.axes and name not in LANES):
            return Type()
        raise self.unknown(node)

    def unknown(self, node: Name) -> ExpressionError:
        name, help = node.id, None
        if name in self.dropped:
            message = f"{name!r} has no value when input {self.dropped[name]!r} is absent"
        elif name in self.absent:
            message = f"input {name!r} is absent and has no default"
            help = f"give the input a default:, or end the line with `if {name}`"
        elif name in self.later:
            message = f"{name!r} is used before it is assigned"
            help = (
                "a value of the token before is a state: list it under state:; lines that a variant adds come last, "
                "and `OLD LINE: [lines]` puts several in a line's place"
            )
        elif name in self.states:
            message = f"{name!r} is a state, and let: lines come before any token"
        elif name in FUNCTIONS or name in DENSE:
            message = f"{name!r} is a function"
        elif name in LANES:
            runs = "the lines of dense, which run" if self.dense else "a step, which runs for one token"
            message = f"{name!r} is not known to {runs}{' for' if self.dense else ' of'} one sequence"
        else:
            known = {*self.values, *self.inputs, *self.params, *self.axes, *self.later} - set(LANES)
            help = hint(name, known) or f"the names here are {', '.join(sorted(known))}"
            return UnknownName(f"unknown name {name!r}", node.start, node.end, help)
        return ExpressionError(message, node.start, node.end, help)


def type_of(node: Node, scope: Scope) -> Type:
    """Raises ExpressionError, or Poisoned where a name's own line is wrong."""
    match node:
        case Number():
            return Type()
        case Name():
            return scope.type_of(node)
        case Unary(operand=operand):
            return number(type_of(operand, scope), operand, "'-'")
        case Binary(op=op, left=left, right=right):
            types = type_of(left, scope), type_of(right, scope)
            return _matmul(node, *types, scope) if op == "@" else _operator(node, *types, scope)
        case Call():
            return _call(node, scope)
    raise TypeError(f"not a node: {node!r}")


def number(type: Type, node: Node, what: str) -> Type:
    if type.boolean:
        help = "turn it into a number by where(condition, 1, 0)"
        raise ExpressionError(f"{what} takes numbers, this is a comparison", node.start, node.end, help)
    return type


def elementwise(node: Node, what: str, types: Iterable[Type], scope: Scope) -> Type:
    """Number by number: equal axes in a step; in the dense form by name, over all the axes that there are."""
    types = tuple(types)
    if scope.dense:
        return Type(tuple(dict.fromkeys(axis for type in types for axis in type.axes)))
    shaped = [type.axes for type in types if type.axes]
    for axes in shaped[1:]:
        if axes != shaped[0]:
            message = f"{what} joins {shown(shaped[0])} with {shown(axes)}"
            raise ExpressionError(message, node.start, node.end, _elementwise_help(shaped[0], axes))
    return Type(shaped[0] if shaped else (), token=any(type.token for type in types))


def _elementwise_help(a: Axes, b: Axes) -> str:
    if a == b[::-1]:
        return "transpose(x) swaps two axes"
    if {len(a), len(b)} == {1, 2}:
        return "diag(x) @ S scales the rows of S, S @ diag(x) its columns"
    if len(a) == len(b) == 1:
        return "outer(a, b) gives a matrix"
    return "the axes must be equal, or one side a scalar"


def _operator(node: Binary, left: Type, right: Type, scope: Scope) -> Type:
    if node.op in "&|":
        for type, part in ((left, node.left), (right, node.right)):
            if not type.boolean:
                raise ExpressionError(
                    f"{node.op!r} joins comparisons, this is a number",
                    part.start,
                    part.end,
                    "put each comparison in parentheses: (a < b) & (c < d)",
                )
        joined = elementwise(node, f"{node.op!r}", (left, right), scope)
        return Type(joined.axes, True, joined.token)
    number(left, node.left, f"{node.op!r}"), number(right, node.right, f"{node.op!r}")
    joined = elementwise(node, f"{node.op!r}", (left, right), scope)
    return Type(joined.axes, node.op[0] in "<>=!", joined.token)


def _matmul(node: Binary, left: Type, right: Type, scope: Scope) -> Type:
    number(left, node.left, "'@'"), number(right, node.right, "'@'")
    for type, part in ((left, node.left), (right, node.right)):
        if not type.axes:
            raise ExpressionError("'@' with a scalar", part.start, part.end, "a scalar multiplies with *")
        if len(type.axes) > 2:
            raise ExpressionError(f"'@' with {shown(type.axes)}", part.start, part.end, "it takes vectors and matrices")
    a, b = left.axes[-1], right.axes[0]
    if a != b:
        message = f"'@' contracts {a} of {shown(left.axes)} with {b} of {shown(right.axes)}"
        help = None
        if len(right.axes) == 2 and right.axes[1] == a:
            help = "right is the wrong way round: transpose(right), or right @ left for a vector on the left"
        elif len(left.axes) == 2 and left.axes[0] == b:
            help = "left is the wrong way round: transpose(left), or right @ left for a vector on the right"
        raise ExpressionError(message, node.start, node.end, help)
    axes = left.axes[:-1] + right.axes[1:]
    if scope.dense and len(set(axes)) < len(axes):
        raise ExpressionError(f"'@' gives {shown(axes)}, one axis twice", node.start, node.end)
    return Type(axes, token=left.token or right.token)


def _call(node: Call, scope: Scope) -> Type:
    name = node.function
    if name.id in DENSE:
        if scope.dense:
            return scope.dense(node, scope)
        raise ExpressionError(f"{name.id!r} belongs to the dense form", name.start, name.end)
    if name.id not in FUNCTIONS:
        known = [*FUNCTIONS, *(DENSE if scope.dense else ())]
        help = hint(name.id, known) or f"functions are {', '.join(known)}"
        raise UnknownName(f"no function {name.id!r}", name.start, name.end, help)
    function = FUNCTIONS[name.id]
    if function.rule == "fill":
        return _fill(node, scope)
    takes_axis = function.rule in ("reduce", "along")
    if scope.dense and function.rule in ("outer", "diag"):
        help = "the dense form joins axes by name: a * b over (K) and (V) is over (K, V)"
        raise ExpressionError(f"{name.id!r} belongs to step", name.start, name.end, help)
    if len(node.args) != function.arity:
        help = f"write {name.id}(x, axis=NAME)" if takes_axis else None
        message = f"{name.id} takes {count(function.arity, 'argument')}, got {len(node.args)}"
        raise ExpressionError(message, node.start, node.end, help)
    if node.axis is not None and not takes_axis:
        raise ExpressionError(f"{name.id} takes no axis=", node.axis.start, node.axis.end)
    types = [type_of(arg, scope) for arg in node.args]
    numbers = list(zip(types, node.args, strict=True))
    if function.rule == "select":
        if not types[0].boolean:
            raise ExpressionError("where needs a comparison first", node.args[0].start, node.args[0].end)
        numbers = numbers[1:]
    for type, arg in numbers:
        number(type, arg, name.id)
    if takes_axis:
        return over_axis(node, types[0], keep=function.rule == "along")
    if function.rule in ("map", "select"):
        return elementwise(node, name.id, types, scope)
    return _shaping(node, function.rule, types)


def _fill(node: Call, scope: Scope) -> Type:
    for arg in node.args:
        if not isinstance(arg, Name):
            raise ExpressionError(f"{node.function.id} takes axis names", arg.start, arg.end)
        if arg.id not in scope.axes or arg.id in LANES or arg.id in HEADS:
            help = hint(arg.id, inner(scope.axes))
            raise ExpressionError(f"{arg.id!r} is no inner axis of this pipeline", arg.start, arg.end, help)
    if node.axis is not None:
        help = f"write {node.function.id}({node.axis.id})"
        raise ExpressionError(f"{node.function.id} takes no axis=", node.axis.start, node.axis.end, help)
    return Type(tuple(arg.id for arg in node.args))


def over_axis(node: Call, type: Type, keep: bool) -> Type:
    name, axis = node.function.id, node.axis
    if axis is None:
        raise ExpressionError(f"{name} without axis=", node.start, node.end, f"write {name}(x, axis=NAME)")
    if axis.id not in type.axes:
        message = f"{axis.id!r} is no axis of {shown(type.axes)}"
        raise ExpressionError(message, axis.start, axis.end, hint(axis.id, type.axes))
    if type.axes.count(axis.id) > 1:
        help = f"name a side with @ ones({axis.id}) or ones({axis.id}) @"
        raise ExpressionError(f"{axis.id!r} is twice in {shown(type.axes)}", axis.start, axis.end, help)
    return type if keep else Type(tuple(each for each in type.axes if each != axis.id), token=type.token)


def _shaping(node: Call, rule: str, types: list[Type]) -> Type:
    wanted = 2 if rule == "transpose" else 1
    for type, arg in zip(types, node.args, strict=True):
        if len(type.axes) != wanted:
            message = f"{rule} takes {count(wanted, 'axis', 'axes')}, this is {shown(type.axes)}"
            raise ExpressionError(message, arg.start, arg.end)
    token = any(type.token for type in types)
    if rule == "transpose":
        return Type(types[0].axes[::-1], token=token)
    return Type(types[0].axes + types[-1].axes, token=token)  # diag(x) is (K, K)


def count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
