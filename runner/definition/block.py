"""A ``definition:`` block as trees: states, lines evaluated once, lines of a step, final states; or dense lines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..expression import (
    ExpressionError,
    Name,
    Node,
    Statement,
    hint,
    parse_expression,
    parse_statement,
)
from .functions import DENSE, FUNCTIONS
from .problems import DefinitionError, Line, Problem, problem_in

KEYS = ("state", "let", "step", "final", "dense")


@dataclass(frozen=True)
class Assignment:
    target: Name
    value: Node
    condition: Name | None
    line: Line


@dataclass(frozen=True)
class Initial:
    """The value of a state before a sequence's first token; a bare input name may be an optional input."""

    value: Node
    line: Line

    @property
    def input(self) -> str | None:
        return self.value.id if isinstance(self.value, Name) else None


@dataclass(frozen=True)
class Final:
    """An output that is a state after its sequence's last token."""

    state: Name
    line: Line


@dataclass(frozen=True)
class Definition:
    """The op token by token: a state keeps its value from one token to the next, every other name starts afresh. Or,
    where it has dense lines, the op over whole tensors, and nothing else."""

    states: Mapping[str, Initial]
    let: tuple[Assignment, ...]
    step: tuple[Assignment, ...]
    finals: Mapping[str, Final]
    dense: tuple[Assignment, ...] = ()

    @property
    def initial_inputs(self) -> frozenset[str]:
        return frozenset(initial.input for initial in self.states.values() if initial.input)


def parse_definition(block: Mapping[str, Any]) -> Definition:
    """The definition of a block ``{state: {S: Line}, let: [Line], step: [Line], final: {output: Line}}`` or
    ``{dense: [Line]}``.

    Raises DefinitionError with every problem found.
    """
    problems: list[Problem] = []
    for key in block:
        if key not in KEYS:
            problems.append(Problem(f"unknown key {key!r} in definition", None, help=hint(key, KEYS)))
    if not block.get("dense") and not block.get("step"):
        problems.append(Problem("a definition without step: or dense: lines", None))
    if block.get("dense") and (beside := [key for key in KEYS[:-1] if block.get(key)]):
        help = "whole tensors have no states, and no lines before them"
        problems.append(Problem(f"dense: stands alone, and here is {beside[0]}: beside it", None, help=help))
    let = _lines(block.get("let", ()), problems)
    step = _lines(block.get("step", ()), problems)
    dense = _lines(block.get("dense", ()), problems)
    states = _states(block.get("state", {}), problems)
    problems += [
        Problem(
            f"{each.target.id!r} is a state", each.line, each.target.start, each.target.end, "assign it under step:"
        )
        for each in let
        if each.target.id in states
    ]
    finals = _finals(block.get("final", {}), states, problems)
    if problems:
        raise DefinitionError(problems)
    return Definition(states, tuple(let), tuple(step), finals, tuple(dense))


def _parsed(line: Line, parse: Callable, problems: list[Problem]):
    try:
        return parse(line.text)
    except ExpressionError as error:
        problems.append(problem_in(line, error))
        return None


def _lines(lines: Sequence[Line], problems: list[Problem]) -> list[Assignment]:
    found = []
    for line in lines:
        statement: Statement | None = _parsed(line, parse_statement, problems)
        if statement is None:
            continue
        target = statement.target
        if target.id in FUNCTIONS or target.id in DENSE:
            problems.append(
                Problem(f"{target.id!r} is a function", line, target.start, target.end, "take another name")
            )
        found.append(Assignment(target, statement.value, statement.condition, line))
    return found


def _states(states: Mapping[str, Line], problems: list[Problem]) -> dict[str, Initial]:
    parsed = {name: (_parsed(line, parse_expression, problems), line) for name, line in states.items()}
    for name, (_, line) in parsed.items():
        if name in FUNCTIONS or name in DENSE:
            problems.append(Problem(f"state {name!r} has the name of a function", line, 0, len(line.text)))
    return {name: Initial(value, line) for name, (value, line) in parsed.items() if value is not None}


def _finals(finals: Mapping[str, Line], states: Mapping[str, Initial], problems: list[Problem]) -> dict[str, Final]:
    found = {}
    for output, line in finals.items():
        node = _parsed(line, parse_expression, problems)
        if node is None:
            continue
        if not isinstance(node, Name) or node.id not in states:
            help = hint(node.id, states) if isinstance(node, Name) else None
            text = f"final {output!r} is to name a state, {line.text!r} is none"
            problems.append(Problem(text, line, node.start, node.end, help or "a per-token value goes under outputs:"))
            continue
        found[output] = Final(node, line)
    return found
