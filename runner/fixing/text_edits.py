"""Edits of a text by place: what no edit names keeps every character, line ends too."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import unified_diff

from ..diagnostics.marks import Mark

LINE_END = re.compile("\r\n|\r|\n")


@dataclass(frozen=True)
class Edit:
    """The characters from start to end become new; offsets from 0."""

    start: int
    end: int
    new: str


class Places:
    """Offsets of the lines of a text, which marks count from 1."""

    def __init__(self, text: str):
        self.text = text
        ends = list(LINE_END.finditer(text))
        self.starts = [0, *(end.end() for end in ends)]
        self.line_end = ends[0][0] if ends else "\n"

    def span(self, mark: Mark) -> tuple[int, int]:
        start, end = self.starts[mark.line - 1], self.starts[mark.end_line - 1]
        return start + mark.column - 1, end + mark.end_column - 1

    def line(self, number: int) -> str:
        """A line without its end; number from 1."""
        start = self.starts[number - 1]
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits; of two that touch the same characters the first alone."""
    last, parts = 0, []
    for edit in sorted(dict.fromkeys(edits), key=lambda each: (each.start, each.end)):
        if edit.start >= last:
            parts += [text[last : edit.start], edit.new]
            last = edit.end
    return "".join([*parts, text[last:]])


def diff(before: str, after: str, name: str) -> list[str]:
    """A unified diff as lines; line ends do not show."""
    old, new = lines_of(before), lines_of(after)
    name = name.removeprefix("/")
    return list(unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""))


def lines_of(text: str) -> list[str]:
    lines = LINE_END.split(text)
    return lines if lines[-1] else lines[:-1]
