"""The one expression grammar: numbers, names, operators, calls. Text becomes a tree; nothing is ever ``eval``ed.

    expression := disjunction [comparison-operator disjunction]
    operators  := **   then unary -   then * / // % @   then + -   then &   then |   then < <= > >= == !=
    call       := NAME ( [expression {, expression}] [, axis=NAME] )
    statement  := NAME = expression [if NAME]
    dotted     := NAME.NAME is a name too; in the expressions of edges alone

Precedence is Python's, so ``(j <= i) & (j > i - window)`` needs its parentheses. Comparisons do not chain.
Text comes from files that nobody vouches for: length, depth, node count and literals are bounded here, and the
values of powers in ``number``.
"""

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from .tree import (
    BeyondLimit,
    Binary,
    Call,
    GrammarError,
    Name,
    Node,
    Number,
    Statement,
    Unary,
    children,
)

MAX_LENGTH = 2_000
MAX_DEPTH = 64
MAX_NODES = 2_000
MAX_LITERAL = 40

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
LEVELS = (("|",), ("&",), ("+", "-"), ("*", "/", "//", "%", "@"))
_KEYWORDS = ("if", "else", "and", "or", "not", "in", "is", "lambda", "for")
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"


def _token_pattern(name: str) -> re.Pattern:
    return re.compile(
        r"(?P<space>[ \t\r\n]+)"
        r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?P<glued>[A-Za-z_0-9.]*))"
        rf"|(?P<name>{name})"
        r"|(?P<operator>\*\*|//|<=|>=|==|!=|[-+*/%@<>=&|(),])"
    )


_TOKEN = _token_pattern(_WORD)
_DOTTED_TOKEN = _token_pattern(rf"{_WORD}(?:\.{_WORD})?")


@dataclass(frozen=True)
class _Token:
    kind: str  # "number", "name", "operator" or "end"
    text: str
    start: int
    end: int


def _tokens(text: str, pattern: re.Pattern) -> list[_Token]:
    if len(text) > MAX_LENGTH:
        raise BeyondLimit(
            f"expression of {len(text)} characters; the limit is {MAX_LENGTH}",
            0,
            len(text),
            "split it into several lines",
        )
    found, at = [], 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None:
            raise GrammarError(f"unexpected character {text[at]!r}", at, at + 1, _character_help(text[at]))
        if match["glued"]:
            raise GrammarError(f"{match[0]!r} is not a number", at, match.end(), "write numbers as 2, 0.5 or 1e-3")
        if match.lastgroup != "space":
            kind = "number" if match["number"] else match.lastgroup
            found.append(_Token(kind, match[0], at, match.end()))
        at = match.end()
    return [*found, _Token("end", "", at, at)]


def _character_help(character: str) -> str | None:
    if character == "^":
        return "a power is written **"
    if character in ".[":
        return "there is no attribute access and no indexing"
    return None


class _Parser:
    def __init__(self, text: str, pattern: re.Pattern = _TOKEN):
        self.tokens = _tokens(text, pattern)
        self.index = 0
        self.nesting = 0
        self.count = 0
        self.depth: dict[int, int] = {}  # id(node) -> height of its tree; the nodes live as long as the parser

    @property
    def token(self) -> _Token:
        return self.tokens[self.index]

    def advance(self) -> _Token:
        self.index += 1
        return self.tokens[self.index - 1]

    def at(self, *operators: str) -> bool:
        return self.token.kind == "operator" and self.token.text in operators

    def at_keyword(self, word: str) -> bool:
        return self.token.kind == "name" and self.token.text == word

    def expect(self, operator: str, after: str) -> _Token:
        if not self.at(operator):
            raise self.unexpected(f"expected {operator!r} {after}")
        return self.advance()

    def unexpected(self, wanted: str) -> GrammarError:
        token = self.token
        got = f"{token.text!r}" if token.kind != "end" else "the end"
        return GrammarError(f"{wanted}, found {got}", token.start, max(token.end, token.start + 1))

    def node(self, node: Node) -> Node:
        below = [self.depth[id(child)] for child in children(node)]
        self.depth[id(node)] = height = 1 + max(below, default=0)
        self.count += 1
        self.bound(height, node.start, node.end)
        if self.count > MAX_NODES:
            raise BeyondLimit(f"more than {MAX_NODES} parts", node.start, node.end, "split it into several lines")
        return node

    def bound(self, depth: int, start: int, end: int) -> None:
        if depth > MAX_DEPTH:
            raise BeyondLimit(f"nested deeper than {MAX_DEPTH}", start, end, "split it into several lines")

    def expression(self) -> Node:
        self.nesting += 1
        self.bound(self.nesting, self.token.start, self.token.end)
        left = self.level(0)
        if self.at(*COMPARISONS):
            op = self.advance().text
            right = self.level(0)
            left = self.node(Binary(op, left, right, left.start, right.end))
            if self.at(*COMPARISONS):
                raise GrammarError(
                    "comparisons do not chain", self.token.start, self.token.end, "write (a < b) & (b < c)"
                )
        self.nesting -= 1
        return left

    def level(self, index: int) -> Node:
        if index == len(LEVELS):
            return self.unary()
        left = self.level(index + 1)
        while self.at(*LEVELS[index]):
            op = self.advance().text
            right = self.level(index + 1)
            left = self.node(Binary(op, left, right, left.start, right.end))
        return left

    def unary(self) -> Node:
        signs = []
        while self.at("-", "+"):
            signs.append(self.advance())
        node = self.power()
        for sign in reversed(signs):
            if sign.text == "-":
                node = self.node(Unary(node, sign.start, node.end))
        return node

    def power(self) -> Node:
        base = self.atom()
        if not self.at("**"):
            return base
        self.nesting += 1
        self.bound(self.nesting, self.token.start, self.token.end)
        self.advance()
        exponent = self.unary()
        self.nesting -= 1
        return self.node(Binary("**", base, exponent, base.start, exponent.end))

    def atom(self) -> Node:
        token = self.token
        if token.kind == "number":
            self.advance()
            return self.node(Number(_literal(token), token.start, token.end))
        if token.kind == "name":
            name = self.name("a value")
            return self.call(name) if self.at("(") else self.node(name)
        if self.at("("):
            self.advance()
            inner = self.expression()
            close = self.expect(")", "to close the parenthesis")
            outer = replace(inner, start=token.start, end=close.end)
            self.depth[id(outer)] = self.depth[id(inner)]
            return outer
        raise self.unexpected("expected a value")

    def name(self, wanted: str) -> Name:
        token = self.token
        if token.kind != "name" or token.text in _KEYWORDS:
            raise self.unexpected(f"expected {wanted}")
        self.advance()
        return Name(token.text, token.start, token.end)

    def call(self, function: Name) -> Node:
        self.advance()
        args: list[Node] = []
        axis = None
        while not self.at(")"):
            keyword = self.token
            following = self.tokens[min(self.index + 1, len(self.tokens) - 1)]
            if keyword.kind == "name" and following.text == "=":
                axis = self.axis(keyword, axis)
            elif axis is not None:
                raise GrammarError("a value after axis=", keyword.start, keyword.end, "axis=NAME comes last")
            else:
                args.append(self.expression())
            if not self.at(")"):
                self.expect(",", f"or ')' in the call of {function.id}")
        end = self.advance().end
        return self.node(Call(function, tuple(args), axis, function.start, end))

    def axis(self, keyword: _Token, earlier: Name | None) -> Name:
        if keyword.text != "axis":
            raise GrammarError(
                f"no keyword {keyword.text!r}", keyword.start, keyword.end, "the only keyword of a call is axis=NAME"
            )
        if earlier is not None:
            raise GrammarError("axis= given twice", keyword.start, keyword.end)
        self.index += 2
        return self.name("an axis name")

    def end(self) -> None:
        if self.token.kind != "end":
            raise self.unexpected("expected an operator or the end")


def _literal(token: _Token) -> int | float:
    if len(token.text) > MAX_LITERAL:
        raise BeyondLimit(f"number of {len(token.text)} characters; the limit is {MAX_LITERAL}", token.start, token.end)
    if token.text.isdigit():
        return int(token.text)
    value = float(token.text)
    if math.isinf(value):
        raise BeyondLimit(f"{token.text} is too large for a float", token.start, token.end)
    return value


@lru_cache(maxsize=1024)
def parse_expression(text: str, dotted: bool = False) -> Node:
    """The tree of an expression; dotted: ``stage.port`` is a name in it. Raises ExpressionError."""
    parser = _Parser(text, _DOTTED_TOKEN if dotted else _TOKEN)
    node = parser.expression()
    if parser.at("="):
        raise GrammarError("'=' in an expression", parser.token.start, parser.token.end, "a comparison is written ==")
    parser.end()
    return node


def parse_statement(text: str) -> Statement:
    """``name = expression [if NAME]``. Raises ExpressionError."""
    parser = _Parser(text)
    if parser.token.kind != "name" or parser.tokens[1].text != "=":
        raise GrammarError("not an assignment", 0, max(parser.token.end, 1), "a line is written name = expression")
    target = parser.name("a name to assign to")
    parser.advance()
    value = parser.expression()
    condition = None
    if parser.at_keyword("if"):
        parser.advance()
        condition = parser.name("the name of an optional input")
    parser.end()
    return Statement(target, value, condition)
