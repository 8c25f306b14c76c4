"""What is wrong with a definition, as values. The caller maps them to marks of its file."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..expression import ExpressionError


@dataclass(frozen=True)
class Line:
    """One text of a definition block. where: whatever the caller wants back with a problem in it."""

    text: str
    where: Any = None


@dataclass(frozen=True)
class Problem:
    """start, end: 0-based offsets into ``line.text``; line is None when the whole block is meant. code: see
    ExpressionError."""

    message: str
    line: Line | None
    start: int = 0
    end: int = 0
    help: str | None = None
    code: str | None = None


class DefinitionError(Exception):
    """Every problem that was found, in the order of the block."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.message for problem in self.problems))


def problem_in(line: Line, error: ExpressionError) -> Problem:
    return Problem(error.message, line, error.start, error.end, error.help, error.code)
