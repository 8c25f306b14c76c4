"""Emits the operations of a program.

What depends on no state is computed for all tokens at once, so that the loop over tokens holds only what must be
there: it costs a launch per operation and token. For the same reason diagonal and outer products stay factored as
long as algebra allows: ``diag(a) @ S`` scales rows, ``S + outer(k, v)`` is one addcmul.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..expression import in_64_bits
from .program import HEAD, LOOP, TOKEN, Apply, Constant, Operation
from .types import Axes


@dataclass(frozen=True)
class Dense:
    id: int
    axes: Axes


@dataclass(frozen=True)
class Outer:
    """outer(left, right) of two vectors."""

    left: Dense
    right: Dense

    @property
    def axes(self) -> Axes:
        return self.left.axes + self.right.axes


@dataclass(frozen=True)
class Diagonal:
    of: Dense

    @property
    def axes(self) -> Axes:
        return self.of.axes * 2


Value = float | Dense | Outer | Diagonal


def column(x):
    return x.unsqueeze(-1)


def row(x):
    return x.unsqueeze(-2)


def squeeze_row(x):
    return x.squeeze(-2)


def squeeze_column(x):
    return x.squeeze(-1)


def trailing(x, count):
    return x[(...,) + (None,) * count]


def dot(x, y):
    return (x * y).sum(-1)


def less_product(x, a, b):
    return torch.addcmul(x, a, b, value=-1)


OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "&": operator.and_, "|": operator.or_,
}  # fmt: skip


@dataclass
class Builder:
    """Emits operations, each distinct one once."""

    operations: list[Operation] = field(default_factory=list)
    known: dict[tuple, int] = field(default_factory=dict)

    def add(self, source, level: int, rank: int) -> int:
        key = source, type(source.value) if isinstance(source, Constant) else None  # True == 1 == 1.0
        if key not in self.known:
            self.known[key] = len(self.operations)
            self.operations.append(Operation(source, level, rank))
        return self.known[key]

    def level(self, value: Dense) -> int:
        return self.operations[value.id].level

    def apply(self, compute: Callable, *args: int, axes: Axes, static: tuple[int, ...] = ()) -> Dense:
        level = max((self.operations[arg].level for arg in args), default=HEAD)
        if level == TOKEN and len(axes) >= 2:
            level = LOOP  # a matrix for each token of the sequence would not fit
        return Dense(self.add(Apply(compute, args, static), level, len(axes)), axes)

    def dense(self, value: Value) -> Dense:
        match value:
            case Dense():
                return value
            case Outer(left=left, right=right):
                a, b = self.apply(column, left.id, axes=left.axes), self.apply(row, right.id, axes=right.axes)
                return self.apply(operator.mul, a.id, b.id, axes=value.axes)
            case Diagonal(of=of):
                return self.apply(torch.diag_embed, of.id, axes=value.axes)
        return Dense(self.add(Constant(in_64_bits(value)), HEAD, 0), ())

    def filled(self, value: float, axes: Axes) -> Dense:
        return Dense(self.add(Constant(value, axes), HEAD, len(axes)), axes)

    def map(self, compute: Callable, *values: Value) -> Dense:
        """Elementwise; scalars are laid out so that they broadcast."""
        denses = [self.dense(value) for value in values]
        axes = max((dense.axes for dense in denses), key=len)
        args = []
        for value, dense in zip(values, denses, strict=True):
            scalar = isinstance(value, Dense) and len(dense.axes) < len(axes)
            args.append(self.apply(trailing, dense.id, axes=(), static=(len(axes),)).id if scalar else dense.id)
        return self.apply(compute, *args, axes=axes)

    def negative(self, value: Value) -> Value:
        match value:
            case Outer():
                return self.scaled(value, lambda factor: self.map(operator.neg, factor))
            case Diagonal(of=of):
                return Diagonal(self.map(operator.neg, of))
        return self.map(operator.neg, value)

    def scaled(self, value: Outer, scale: Callable[[Dense], Dense]) -> Outer:
        """Scale the factor that depends on less, so that it can leave the loop."""
        if self.level(value.left) <= self.level(value.right):
            return Outer(scale(value.left), value.right)
        return Outer(value.left, scale(value.right))

    def operate(self, op: str, left: Value, right: Value) -> Value:
        compute = OPERATORS[op]
        if op == "*" and is_scalar(right):
            left, right = right, left
        if op == "*" and is_scalar(left):
            if left == 1:
                return right
            if isinstance(right, Outer):
                return self.scaled(right, lambda factor: self.map(compute, left, factor))
            if isinstance(right, Diagonal):
                return Diagonal(self.map(compute, left, right.of))
        if op == "/" and is_scalar(right):
            if isinstance(left, Outer):
                return self.scaled(left, lambda factor: self.map(compute, factor, right))
            if isinstance(left, Diagonal):
                return Diagonal(self.map(compute, left.of, right))
        if op in "+-" and isinstance(right, Outer) and not is_scalar(left):
            return self.add_outer(self.dense(left), right, torch.addcmul if op == "+" else less_product)
        if op == "+" and isinstance(left, Outer) and not is_scalar(right):
            return self.add_outer(self.dense(right), left, torch.addcmul)
        return self.map(compute, left, right)

    def add_outer(self, matrix: Dense, outer: Outer, compute: Callable) -> Dense:
        a = self.apply(column, outer.left.id, axes=outer.left.axes)
        b = self.apply(row, outer.right.id, axes=outer.right.axes)
        return self.apply(compute, matrix.id, a.id, b.id, axes=matrix.axes)

    def matmul(self, left: Value, right: Value) -> Value:
        match left, right:
            case Diagonal(), Diagonal():
                return Diagonal(self.map(operator.mul, left.of, right.of))
            case Diagonal(), Outer():
                return Outer(self.map(operator.mul, left.of, right.left), right.right)
            case Outer(), Diagonal():
                return Outer(left.left, self.map(operator.mul, left.right, right.of))
            case Diagonal(), Dense():
                return self.rows_scaled(left.of, right)
            case Dense(), Diagonal():
                return self.columns_scaled(left, right.of)
            case _, Outer():
                first = self.matmul(left, right.left)
                return self.operate("*", first, right.right) if not first.axes else Outer(first, right.right)
            case Outer(), _:
                last = self.matmul(left.right, right)
                return self.operate("*", last, left.left) if not last.axes else Outer(left.left, last)
        return self.dense_matmul(left, right)

    def rows_scaled(self, scale: Dense, x: Dense) -> Dense:
        if len(x.axes) == 2:
            scale = self.apply(column, scale.id, axes=scale.axes)
        return self.apply(operator.mul, scale.id, x.id, axes=x.axes)

    def columns_scaled(self, x: Dense, scale: Dense) -> Dense:
        if len(x.axes) == 2:
            scale = self.apply(row, scale.id, axes=scale.axes)
        return self.apply(operator.mul, x.id, scale.id, axes=x.axes)

    def dense_matmul(self, left: Dense, right: Dense) -> Dense:
        axes = left.axes[:-1] + right.axes[1:]
        match len(left.axes), len(right.axes):
            case 1, 1:
                return self.apply(dot, left.id, right.id, axes=axes)
            case 1, 2:
                left = self.apply(row, left.id, axes=left.axes)
                product = self.apply(torch.matmul, left.id, right.id, axes=axes)
                return self.apply(squeeze_row, product.id, axes=axes)
            case 2, 1:
                right = self.apply(column, right.id, axes=right.axes)
                product = self.apply(torch.matmul, left.id, right.id, axes=axes)
                return self.apply(squeeze_column, product.id, axes=axes)
        return self.apply(torch.matmul, left.id, right.id, axes=axes)


def is_scalar(value: Value) -> bool:
    return not isinstance(value, (Dense, Outer, Diagonal)) or not value.axes
