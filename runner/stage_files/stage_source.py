"""Where things stand in a stage file, for errors about it. Reads the text, runs nothing."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics.marks import Mark
from ..expression import ExpressionError

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Text:
    """A text of a stage file. verbatim: the file holds it between quotes on one line, so that parts have places."""

    mark: Mark
    verbatim: bool

    def part(self, error: ExpressionError) -> Mark:
        return self.mark.within(1 + error.start, 1 + error.end) if self.verbatim else self.mark


class StageSource:
    """The text of a stage file and its syntax tree (None where it does not parse)."""

    def __init__(self, file: Path):
        self.file = str(file)
        try:
            self.text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            self.text = ""
        try:
            self.tree = ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError):
            self.tree = None

    def line(self, number: int, column: int = 1) -> Mark:
        lines = self.text.splitlines() or [""]
        number = min(max(number, 1), len(lines))
        return Mark(self.file, number, column, number, max(len(lines[number - 1]) + 1, column + 1), self.text)

    def statement(self, number: int) -> Mark:
        """What stands on a line."""
        text = self.text.splitlines()[number - 1]
        return self.line(number, len(text) - len(text.lstrip()) + 1)

    def function(self, name: str) -> Mark:
        """The name in ``def name(...)``; the first line if there is none."""
        for node in self.statements():
            if isinstance(node, FUNCTIONS) and node.name == name:
                start = node.col_offset + len("def " if isinstance(node, ast.FunctionDef) else "async def ") + 1
                return Mark(self.file, node.lineno, start, node.lineno, start + len(name), self.text)
        return self.assignment(name)

    def argument(self, function: str, name: str) -> Mark:
        """A parameter of a function."""
        for node in self.statements():
            if isinstance(node, FUNCTIONS) and node.name == function:
                for each in ast.walk(node.args):
                    if isinstance(each, ast.arg) and each.arg == name:
                        return self.span(each)
        return self.function(function)

    def assignment(self, name: str) -> Mark:
        """The name in ``name = ...``; the first line if there is none."""
        for node in self.statements():
            if isinstance(node, ast.Assign) and name in names(node.targets):
                return self.span(node.targets[0])
        return self.line(1)

    def contract_key(self, section: str, key: str) -> Mark:
        """The text key in ``CONTRACT = Contract(section={"key": ...})``; the assignment if it is not written so."""
        value = self.contract_value(section)
        for each in value.keys if isinstance(value, ast.Dict) else ():
            if isinstance(each, ast.Constant) and each.value == key:
                return self.span(each)
        return self.assignment("CONTRACT")

    def contract_texts(self, section: str, texts: Sequence[object]) -> list[Text]:
        """Where ``CONTRACT = Contract(section=...)`` holds a text, or each of several."""
        value = self.contract_value(section)
        if value is None:
            return [Text(self.assignment("CONTRACT"), False)] * len(texts)
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(texts) else []
        return [self.text_at(part, text) for part, text in zip(parts or [value] * len(texts), texts)]

    def text_at(self, node: ast.expr, text: object) -> Text:
        mark = self.span(node)
        one_line = mark.line == mark.end_line
        return Text(mark, one_line and mark.source[mark.column : mark.end_column - 2] == text)

    def contract_value(self, section: str) -> ast.expr | None:
        for node in self.statements():
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and "CONTRACT" in names(node.targets):
                for each in node.value.keywords:
                    if each.arg == section:
                        return each.value
        return None

    def statements(self) -> list[ast.stmt]:
        return self.tree.body if self.tree else []

    def span(self, node: ast.expr | ast.arg) -> Mark:
        """The mark of a node; ast counts bytes, marks count characters."""
        lines = self.text.split("\n")
        start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode(errors="replace"))
        end = len(lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode(errors="replace"))
        return Mark(self.file, node.lineno, start + 1, node.end_lineno, end + 1, self.text)


def names(targets: list[ast.expr]) -> list[str]:
    return [each.id for each in targets if isinstance(each, ast.Name)]
