"""The value of a dense definition on whole tensors, in float64, for every batch and head at once."""

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from ..expression import Binary, Call, ExpressionError, Name, Node, Number, Unary
from ..expression.number import binary_number, guarded
from .block import Definition
from .builder import OPERATORS
from .dense_arrays import Array, Value, aligned, contracted, largest, mapped, over, picked
from .functions import DENSE, FUNCTIONS, of_numbers
from .layout import DTYPE, problem
from .problems import DefinitionError, problem_in
from .types import HEADS, LANES, Axes, head_of

ALONG = ("along", "masked along")


def evaluate_dense(
    definition: Definition,
    inputs: Mapping[str, torch.Tensor | None],
    declared: Mapping[str, Axes],
    outputs: Mapping[str, Axes],
    numbers: Mapping[str, float],
    filled: Mapping[str, float],
    absent: Collection[str],
) -> dict[str, torch.Tensor | None]:
    """Outputs by name, float64, each over the axes that are asked for; None where all its lines were dropped.

    numbers: params and axis sizes. filled: the value of each absent input that has a default. Differentiable.
    """
    head = head_of({axis for axes in declared.values() for axis in axes})
    own = {name: loaded(x, declared[name], head, numbers) for name, x in inputs.items() if x is not None}
    device = next(iter(own.values())).x.device
    reading = Reading({**own, **filled}, numbers, device)
    for each in definition.dense:
        if each.condition is not None and each.condition.id in absent:
            continue
        try:
            reading.values[each.target.id] = reading.value(each.value)
        except ExpressionError as error:
            raise DefinitionError([problem_in(each.line, error)]) from None
    return {name: laid_out(name, reading.values.get(name), axes, reading) for name, axes in outputs.items()}


def loaded(x: torch.Tensor, declared: Axes, head: str | None, numbers: Mapping[str, float]) -> Array:
    """An input in float64; a key head once for each of the heads that read it, under their axis."""
    x = x.to(DTYPE)
    for dim, axis in enumerate(declared):
        if axis in HEADS and axis != head:
            if not x.shape[dim] or numbers[head] % x.shape[dim]:
                raise problem(f"{head} = {numbers[head]} is no multiple of {axis} = {x.shape[dim]}")
            x = x.repeat_interleave(numbers[head] // x.shape[dim], dim)
    return Array(x, tuple(head if axis in HEADS else "B" if axis == "N" else axis for axis in declared))


def laid_out(name: str, value: Value | None, axes: Axes, reading: "Reading") -> torch.Tensor | None:
    if value is None:
        return None
    value = as_array(value, reading.device)
    axes = tuple("B" if axis == "N" else axis for axis in axes)
    if foreign := set(value.axes) - set(axes):
        raise problem(f"output {name!r} has the axis {', '.join(sorted(foreign))}, which the stages' {name} has not")
    return aligned(value, axes).expand([reading.numbers[axis] for axis in axes])


@dataclass
class Reading:
    """values: inputs, and what the lines have given so far; numbers: params and axis sizes."""

    values: dict[str, Value]
    numbers: Mapping[str, float]
    device: torch.device

    def value(self, node: Node) -> Value:
        match node:
            case Number(value=value):
                return value
            case Name(id=name):
                return self.values[name] if name in self.values else self.numbers[name]
            case Unary(operand=operand):
                value = self.value(operand)
                return mapped(operator.neg, value) if isinstance(value, Array) else -value
            case Binary(op="@", left=left, right=right):
                return self.product(left, right)
            case Binary(op=op, left=left, right=right):
                values = self.value(left), self.value(right)
                if not any(isinstance(value, Array) for value in values):
                    return binary_number(node, op, *values)
                return mapped(OPERATORS[op], *values)
        return self.call(node)

    def product(self, left: Node, right: Node) -> Array:
        """``left @ right``: the last inner axis of the left side is the first of the right."""
        a, b = self.value(left), self.value(right)
        return contracted(a, b, inner_of(a)[-1])

    def call(self, node: Call) -> Value:
        name = node.function.id
        function = FUNCTIONS.get(name) or DENSE[name]
        match function.rule:
            case "fill":
                axes = tuple(arg.id for arg in node.args)
                sizes = [self.numbers[axis] for axis in axes]
                return Array(torch.full(sizes, float(name == "ones"), dtype=DTYPE, device=self.device), axes)
            case "index":
                axis = node.args[0].id
                return Array(torch.arange(self.numbers[axis], dtype=DTYPE, device=self.device), (axis,))
            case "places":
                named = node.args[1].id
                return largest(self.value(node.args[0]), node.axis.id, named, self.numbers[named])
        if name == "sum" and isinstance(node.args[0], Binary) and node.args[0].op == "*":
            return self.sum_of_products(node)
        values = [self.value(arg) for arg in node.args]
        match function.rule:
            case "map" | "select":
                if not any(isinstance(value, Array) for value in values):
                    return guarded(node, lambda: of_numbers(name, values))
                return self.elementwise(name, function.compute, values)
            case "transpose":
                return transposed(values[0])
            case "pick":
                return picked(*values, node.axis.id)
        arrays = [as_array(value, self.device) for value in values]
        return over(function.compute, node.axis.id, function.rule in ALONG, *arrays)

    def elementwise(self, name: str, compute, values: list[Value]) -> Value:
        if name == "where" and not isinstance(values[0], Array):
            return values[1] if values[0] else values[2]
        return mapped(compute, *values)

    def sum_of_products(self, node: Call) -> Array:
        """Without the products themselves, whose axes are those of both sides."""
        sides, axis = [self.value(node.args[0].left), self.value(node.args[0].right)], node.axis.id
        if all(isinstance(side, Array) and axis in side.axes for side in sides):
            return contracted(*sides, axis)
        return over(torch.sum, axis, False, mapped(operator.mul, *sides))


def as_array(value: Value, device: torch.device) -> Array:
    """A number, or what is true or false, as a tensor without axes."""
    if isinstance(value, Array):
        return value
    dtype = torch.bool if isinstance(value, bool) else DTYPE
    return Array(torch.tensor(float(value), dtype=dtype, device=device), ())


def inner_of(value: Array) -> Axes:
    return tuple(axis for axis in value.axes if axis not in LANES and axis not in HEADS)


def transposed(value: Array) -> Array:
    """With its two inner axes exchanged."""
    a, b = (value.axes.index(axis) for axis in inner_of(value))
    axes = list(value.axes)
    axes[a], axes[b] = axes[b], axes[a]
    return Array(value.x.transpose(a, b), tuple(axes))
