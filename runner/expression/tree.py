"""The tree that an expression's text becomes, and the error that a bad text gives."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..diagnostics import codes


class ExpressionError(Exception):
    """A mistake in a text: what, where (0-based offsets ``start <= x < end`` into the text) and what would help.

    code: the error code of a mistake that is the same wherever the text stands; None where it depends on that.
    """

    code: str | None = None

    def __init__(self, message: str, start: int, end: int, help: str | None = None):
        super().__init__(message)
        self.message, self.start, self.end, self.help = message, start, end, help


class GrammarError(ExpressionError):
    """The text does not follow the grammar."""

    code = codes.EXPRESSION


class UnknownName(ExpressionError):
    """Something that is neither a value here nor a function."""

    code = codes.UNKNOWN_NAME


class BeyondLimit(ExpressionError):
    """More than untrusted text may ask for: length, depth, parts, literals, exponents."""

    code = codes.EXPRESSION_LIMIT


@dataclass(frozen=True)
class Number:
    value: int | float
    start: int
    end: int


@dataclass(frozen=True)
class Name:
    id: str
    start: int
    end: int


@dataclass(frozen=True)
class Unary:
    """Only ``-``."""

    operand: "Node"
    start: int
    end: int


@dataclass(frozen=True)
class Binary:
    """op: one of ``+ - * / // % ** @ & |`` or a comparison."""

    op: str
    left: "Node"
    right: "Node"
    start: int
    end: int


@dataclass(frozen=True)
class Call:
    """axis: the name given as ``axis=NAME``."""

    function: Name
    args: "tuple[Node, ...]"
    axis: Name | None
    start: int
    end: int


Node = Number | Name | Unary | Binary | Call


@dataclass(frozen=True)
class Statement:
    """``target = value``; with ``if NAME`` at its end, only where the input of that name is given."""

    target: Name
    value: Node
    condition: Name | None = None


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Call(args=args):
            return args
    return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in the order of the text."""
    yield node
    for child in children(node):
        yield from walk(child)


def names_in(node: Node) -> frozenset[str]:
    """The free names. Function and axis names are not among them."""
    return frozenset(part.id for part in walk(node) if isinstance(part, Name))
