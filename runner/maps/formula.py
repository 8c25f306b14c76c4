"""An expression with its names resolved as far as the file alone tells: operands, numbers, the term over both."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..expression import Binary, Call, ExpressionError, Name, Node, Unary, evaluate_number, names_in, number_problems
from .parse_formula import COMPARISONS
from .terms import Number, Scalar, Tensor, Term, apply, power

LOGICAL = (*COMPARISONS, "&", "|")

RESERVED = {
    "y", "needs", "seqs", "config", "torch", "tl", "triton", "_maps", "found", "m", "m_sum", "o_r", "o_c", "i_c",
    "rows", "cols", "ends", "N", "inner", "length", "BR", "BC",
}  # fmt: skip
"""Names that a generated stage has for itself."""


@dataclass(frozen=True)
class Formula:
    """text: as written. term: over ports and scalars. operands: port -> the name that the text reads, where it first
    stands. scalars: name -> an expression over params and axes. reader: the stage entry that reads it, None for an
    output of the pipeline; port: where."""

    text: str
    term: Term
    operands: Mapping[str, Name]
    scalars: Mapping[str, str]
    reader: str | None
    port: str


def make_formula(
    text: str, tree: Node, params: Collection[str], axes: Collection[str], reader: str | None, port: str
) -> Formula:
    """params, axes: the file's; every other name is an operand. Raises ExpressionError."""
    reading = _Reading(text, frozenset(params), frozenset({*params, *axes}))
    term = reading.term(tree)
    if not reading.ports:
        help = "name an input or stage.port; a stage's numbers stand under its with:"
        raise ExpressionError("the expression is only a number", tree.start, tree.end, help)
    operands = {reading.ports[name.id]: name for name in reading.names.values()}
    return Formula(text, term, operands, reading.scalars, reader, port)


@dataclass
class _Reading:
    """numbers: names that are no operands, params and axes. ports: name in the text -> port."""

    text: str
    params: frozenset[str]
    numbers: frozenset[str]
    ports: dict[str, str] = field(default_factory=dict)
    names: dict[str, Name] = field(default_factory=dict)
    scalars: dict[str, str] = field(default_factory=dict)

    def term(self, node: Node) -> Term:
        match node:
            case Binary(op=op, left=left, right=right) if op in LOGICAL:
                return apply(op, self.term(left), self.term(right))
            case _ if names_in(node) <= self.numbers:
                return self.number(node)
            case Name():
                return Tensor(self.port(node))
            case Unary(operand=operand):
                return apply("negative", self.term(operand))
            case Binary(op="**", left=left, right=right):
                return power(self.term(left), evaluate_number(right, {}))
            case Binary(op=op, left=left, right=right):
                return apply("divide" if op == "/" else op, self.term(left), self.term(right))
            case Call(function=function, args=args):
                return apply(function.id, *map(self.term, args))
        raise TypeError(f"not a node: {node!r}")

    def number(self, node: Node) -> Term:
        """A part without operands: computed once a call, not at every element."""
        for error in number_problems(node, self.numbers):
            raise error
        if not names_in(node):
            return Number(float(evaluate_number(node, {})))
        text = self.text[node.start : node.end]
        known = [name for name, each in self.scalars.items() if each == text]
        name = known[0] if known else text if text in self.params else f"c{len(self.scalars)}"
        while not known and name not in self.params and name in self.numbers:
            name = f"{name}_"
        self.scalars[name] = text
        return Scalar(name)

    def port(self, node: Name) -> str:
        """``out.o`` is the port out_o; what would clash with another name gets a head."""
        if node.id not in self.ports:
            port = node.id.replace(".", "_")
            taken = {*RESERVED, *self.ports.values(), *self.numbers}
            while port in taken or port.startswith(("b_", "d_", "sum_")) or re.fullmatch(r"[cnt]\d+_*", port):
                port = f"x_{port}"
            self.ports[node.id], self.names[node.id] = port, node
        return self.ports[node.id]
