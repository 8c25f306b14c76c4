"""Expressions of a definition as plain PyTorch, for a person to read and to replace by something faster.

Tensors are ``[leading..., inner axes...]``; leading dimensions broadcast, inner ones are written out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..definition.functions import FUNCTIONS
from ..expression import Binary, Call, Name, Node, Number, Unary

MAPS = {
    "abs": "torch.abs", "exp": "torch.exp", "exp2": "torch.exp2", "expm1": "torch.expm1", "log": "torch.log",
    "log1p": "torch.log1p", "log2": "torch.log2", "sqrt": "torch.sqrt", "tanh": "torch.tanh",
    "sigmoid": "torch.sigmoid", "relu": "torch.relu", "silu": "torch.nn.functional.silu",
    "elu": "torch.nn.functional.elu",
}  # fmt: skip
"""Functions of a definition that PyTorch has under one name."""
OVER = {
    "sum": "{x}.sum({dim})", "mean": "{x}.mean({dim})", "max": "{x}.amax({dim})", "min": "{x}.amin({dim})",
    "norm": "torch.linalg.vector_norm({x}, dim={dim})", "logsumexp": "torch.logsumexp({x}, {dim})",
    "softmax": "torch.softmax({x}, {dim})",
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """Python for one value. axes: its inner ones; None for a plain number. atom: needs no parentheses."""

    code: str
    axes: tuple[str, ...] | None
    atom: bool = True

    @property
    def inside(self) -> str:
        return self.code if self.atom else f"({self.code})"

    def to(self, rank: int) -> str:
        """As an operand that meets a value with so many inner axes."""
        if self.axes is None or len(self.axes) == rank or self.axes:
            return self.inside
        return f"{self.inside}[..., {', '.join(['None'] * rank)}]"


@dataclass(frozen=True)
class Writer:
    """values: what names stand for. leaf: the text of a node that is a value given from outside, or None."""

    values: Mapping[str, Text]
    leaf: Callable[[Node], Text | None] = lambda node: None

    def text(self, node: Node) -> Text:
        given = self.leaf(node)
        if given is not None:
            return given
        match node:
            case Number(value=value):
                return Text(repr(value), None)
            case Name(id=name):
                return self.values[name]
            case Unary(operand=operand):
                value = self.text(operand)
                return Text(f"-{value.inside}", value.axes, atom=False)
            case Binary(op="@"):
                return matmul(self.text(node.left), self.text(node.right))
            case Binary():
                return joined(node.op, self.text(node.left), self.text(node.right))
        return self.call(node)

    def call(self, node: Call) -> Text:
        name = node.function.id
        rule = FUNCTIONS[name].rule
        if rule == "fill":
            axes = tuple(arg.id for arg in node.args)
            return Text(f"like.new_full(({', '.join(axes)},), {float(name == 'ones')})", axes)
        args = [self.text(arg) for arg in node.args]
        if rule in ("reduce", "along"):
            return over_axis(name, args[0], node.axis.id, keep=rule == "along")
        if rule in ("outer", "diag", "transpose"):
            return shaped(rule, args)
        return mapped(name, args)


def joined(op: str, left: Text, right: Text) -> Text:
    """An operator number by number; scalars get the axes of the other side."""
    if left.axes is None and right.axes is None:
        return Text(f"{left.inside} {op} {right.inside}", None, atom=False)
    axes = max(left.axes or (), right.axes or (), key=len)
    return Text(f"{left.to(len(axes))} {op} {right.to(len(axes))}", axes, atom=False)


def matmul(left: Text, right: Text) -> Text:
    axes = left.axes[:-1] + right.axes[1:]
    match len(left.axes), len(right.axes):
        case 1, 1:
            return Text(f"({left.inside} * {right.inside}).sum(-1)", axes)
        case 1, 2:
            return Text(f"({left.inside}[..., None, :] @ {right.inside})[..., 0, :]", axes)
        case 2, 1:
            return Text(f"({left.inside} @ {right.inside}[..., None])[..., 0]", axes)
    return Text(f"{left.inside} @ {right.inside}", axes, atom=False)


def over_axis(name: str, x: Text, axis: str, keep: bool) -> Text:
    at = x.axes.index(axis)
    axes = x.axes if keep else x.axes[:at] + x.axes[at + 1 :]
    return Text(OVER[name].format(x=x.inside, dim=at - len(x.axes)), axes)


def shaped(rule: str, args: list[Text]) -> Text:
    first = args[0]
    if rule == "transpose":
        return Text(f"{first.inside}.mT", first.axes[::-1])
    if rule == "diag":
        return Text(f"torch.diag_embed({first.code})", first.axes * 2)
    return Text(f"{first.inside}[..., :, None] * {args[1].inside}[..., None, :]", first.axes + args[1].axes, atom=False)


def mapped(name: str, args: list[Text]) -> Text:
    axes = max((arg.axes for arg in args if arg.axes is not None), key=len, default=None)
    rank = len(axes or ())
    operands = [arg.code if arg.axes == axes else arg.to(rank) for arg in args]
    if name in MAPS:
        code = f"{MAPS[name]}({operands[0] if axes is not None else tensor(operands[0])})"
        return Text(code, axes if axes is not None else ())
    match name:
        case "softplus":
            return Text(f"torch.logaddexp({operands[0]}, torch.zeros_like({operands[0]}))", axes)
        case "logsigmoid":
            return Text(f"-torch.logaddexp(-{args[0].inside}, torch.zeros_like({operands[0]}))", axes, atom=False)
        case "maximum" | "minimum":
            return Text(extreme(name, *args, rank), axes)
        case "clamp":
            low = Text(extreme("maximum", args[0], args[1], rank), axes)
            return Text(extreme("minimum", low, args[2], rank), axes)
    both = [tensor(arg.code) if arg.axes is None else arg.to(rank) for arg in args[1:]]
    return Text(f"torch.where({args[0].to(rank)}, {', '.join(both)})", axes)


def extreme(name: str, left: Text, right: Text, rank: int) -> str:
    if left.axes is None:
        left, right = right, left
    if right.axes is None:
        return f"torch.clamp({left.code}, {'min' if name == 'maximum' else 'max'}={right.code})"
    return f"torch.{name}({left.to(rank)}, {right.to(rank)})"


def tensor(number: str) -> str:
    """A plain number where PyTorch takes tensors alone."""
    return f"torch.as_tensor({number}, dtype=like.dtype)"
