"""Types of the functions that the dense form alone has: places of an axis, masked sums, what is picked by place."""

from ..expression import Call, ExpressionError, Name, hint
from .functions import DENSE
from .types import (
    HEADS,
    LANES,
    Scope,
    Type,
    count,
    elementwise,
    head_of,
    inner,
    number,
    over_axis,
    shown,
    type_of,
)


def dense_type(node: Call, scope: Scope) -> Type:
    """Raises ExpressionError, or Poisoned where a name's own line is wrong."""
    name, function = node.function, DENSE[node.function.id]
    if len(node.args) != function.arity:
        call = f"{name.id}({', '.join(function.arguments)})"
        message = f"{name.id} takes {count(function.arity, 'argument')}, got {len(node.args)}"
        raise ExpressionError(message, node.start, node.end, f"write {call}")
    if function.rule == "index":
        return _index(node, scope)
    if function.rule == "map":
        types = [number(type_of(arg, scope), arg, name.id) for arg in node.args]
        return elementwise(node, name.id, types, scope)
    first = number(type_of(node.args[0], scope), node.args[0], name.id)
    if function.rule == "places":
        return _places(node, first, scope)
    second = type_of(node.args[1], scope)
    if function.rule == "pick":
        return _pick(node, first, number(second, node.args[1], name.id))
    if not second.boolean:
        part = node.args[1]
        raise ExpressionError(f"{name.id} needs a comparison second", part.start, part.end, "as in j <= i")
    return over_axis(node, elementwise(node, name.id, (first, second), scope), keep=function.rule == "masked along")


def inner_axis(name: Name, scope: Scope) -> str:
    """An axis that a value of this definition can have."""
    if not isinstance(name, Name):
        raise ExpressionError("an axis is named here", name.start, name.end)
    if name.id not in scope.axes or name.id in LANES or name.id in HEADS:
        help = hint(name.id, inner(scope.axes))
        raise ExpressionError(f"{name.id!r} is no inner axis of this pipeline", name.start, name.end, help)
    return name.id


def _index(node: Call, scope: Scope) -> Type:
    if node.axis is not None:
        raise ExpressionError("index takes no axis=", node.axis.start, node.axis.end, f"write index({node.axis.id})")
    axis = node.args[0]
    if isinstance(axis, Name) and axis.id in scope.axes and axis.id in ("B", head_of(scope.axes)):
        return Type()  # of the batch and the head that the lines run for
    return Type((inner_axis(axis, scope),))


def _places(node: Call, x: Type, scope: Scope) -> Type:
    axis = inner_axis(node.args[1], scope)
    rest = over_axis(node, x, keep=False)
    if axis in rest.axes:
        part = node.args[1]
        raise ExpressionError(f"{axis!r} is an axis of {shown(x.axes)} already", part.start, part.end)
    return Type((*rest.axes, axis))


def _pick(node: Call, x: Type, places: Type) -> Type:
    rest = over_axis(node, x, keep=False)
    return Type(tuple(dict.fromkeys((*places.axes, *rest.axes))))
