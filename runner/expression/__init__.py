"""One small grammar for params, constraints, flops and definitions: parsed to a tree, never ``eval``ed."""

from .number import evaluate_number, help_for, hint, in_64_bits, is_condition, number_problems
from .parse import parse_expression, parse_statement
from .tree import (
    Binary,
    Call,
    ExpressionError,
    Name,
    Node,
    Number,
    Statement,
    Unary,
    UnknownName,
    names_in,
    walk,
)

__all__ = [
    "Binary", "Call", "ExpressionError", "Name", "Node", "Number", "Statement", "Unary", "UnknownName",
    "evaluate_number", "help_for", "hint", "in_64_bits", "is_condition", "names_in", "number_problems",
    "parse_expression", "parse_statement", "walk",
]  # fmt: skip
