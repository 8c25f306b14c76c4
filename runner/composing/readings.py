"""Every value that the lines of a definition compute on the way, where it is written, and whether the recurrence
reads it: what the ports of stages are matched with.

A value is *recurrent* when it depends on a state. It is *direct* when a recurrent value is made of it: the key of
``S + outer(k, v)``, and k and beta of ``outer(beta * k, v)``, but not the x of ``k = x / norm(x, axis=K)``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..definition import Definition, typecheck
from ..definition.block import Assignment
from ..definition.problems import Line
from ..diagnostics.marks import Mark
from ..expression import Binary, Call, Name, Node, Number, Unary, names_in, walk
from ..expression.tree import children
from ..loading.spec import PipelineSpec
from ..verification.oracle import defaults, parsed
from .assigned_once import ambiguous, assigned_once

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=", "&", "|")
TRANSPARENT = ("exp", "exp2", "log", "log2", "diag", "outer", "transpose")
"""Functions whose argument is read as directly as their value: a decay enters as exp(g), a write as outer(k, v)."""


@dataclass(frozen=True)
class Reading:
    """One value of a definition. id: its name in ``Readings.definition``. axes: inner ones. target: the name that its
    line gives it, if it is all of the line's right side."""

    id: str
    node: Node
    line: Line
    axes: tuple[str, ...]
    recurrent: bool
    direct: bool
    target: str | None

    @property
    def text(self) -> str:
        return self.line.text[self.node.start : self.node.end]

    @property
    def mark(self) -> Mark:
        return self.line.where.within(self.node.start, self.node.end)


@dataclass(frozen=True)
class Readings:
    """original: the file's, its names assigned once. definition: that, with a line before each of its lines for every
    reading in it, and one per state for its value before the step (``entry``). values: in the order of the text, inputs
    first met included. constants: texts of its expressions over params and axes alone, and whether the recurrence reads
    them."""

    original: Definition
    definition: Definition
    values: tuple[Reading, ...]
    constants: Mapping[str, bool]
    state_axes: Mapping[str, tuple[str, ...]]
    value_axes: Mapping[str, tuple[str, ...]]


def entry(state: str) -> str:
    return f"#entry {state}"


def read_definition(spec: PipelineSpec) -> Readings:
    """The readings of a definition that has no errors (see verification.oracle.definition_errors)."""
    definition, constants = assigned_once(parsed(spec), spec.inputs), {*spec.params, *axis_names(spec)}
    reader = Reader(definition, constants, ambiguous(definition, spec.inputs))
    let, step = ([each for old in lines for each in reader.with_snapshots(old)] for lines in reader.lines)
    line = definition.step[0].line
    entries = [Assignment(Name(entry(name), 0, 0), Name(name, 0, 0), None, line) for name in definition.states]
    extended = replace(definition, let=tuple(let), step=(*entries, *step))
    optional = [name for name, each in spec.inputs.items() if each.optional]
    types = typecheck(
        extended, declared_axes(spec), tuple(spec.axes), tuple(spec.params), optional, tuple(defaults(spec))
    )
    values = tuple(reader.readings(types.values))
    return Readings(definition, extended, values, reader.constant_texts(), types.states, types.values)


def declared_axes(spec: PipelineSpec) -> dict[str, tuple[str, ...]]:
    return {name: each.shape for name, each in spec.inputs.items()}


def axis_names(spec: PipelineSpec) -> set[str]:
    return {axis for entry in spec.inputs.values() for axis in entry.shape} | set(spec.axes)


class Reader:
    """Walks the lines in order. assigned: name -> the tree of its value, where it has one that depends on no state."""

    def __init__(self, definition: Definition, constants: set[str], ambiguous: set[str]):
        self.lines, self.constants, self.ambiguous = (definition.let, definition.step), constants, ambiguous
        self.recurrent, self.assigned = set(definition.states), {}
        self.found: list[tuple[Node, Line, str | None, bool]] = []
        self.direct: set[int] = set()
        self.texts: list[tuple[int, str]] = []

    def with_snapshots(self, statement: Assignment) -> Iterator[Assignment]:
        value, line = statement.value, statement.line
        for node in walk(value):
            if self.is_constant(node):
                self.keep_text(value, node, line)
            elif not (isinstance(node, Binary) and node.op in COMPARISONS):
                yield Assignment(Name(f"#{len(self.found)}", 0, 0), node, statement.condition, line)
                target = statement.target.id if node is value else None
                self.found.append((node, line, target, self.depends(node)))
        if self.depends(value):
            self.visit(value)
            self.recurrent.add(statement.target.id)
        else:
            self.recurrent.discard(statement.target.id)
            if statement.target.id not in self.ambiguous:
                self.assigned[statement.target.id] = value
        yield statement

    def is_constant(self, node: Node) -> bool:
        return names_in(node) <= self.constants

    def depends(self, node: Node) -> bool:
        return not names_in(node).isdisjoint(self.recurrent)

    def keep_text(self, root: Node, node: Node, line: Line) -> None:
        """The text of a constant that is no part of a larger one; of a divisor, what it multiplies by."""
        around = next((each for each in walk(root) if any(child is node for child in children(each))), None)
        if around is None or not self.is_constant(around):
            text = line.text[node.start : node.end]
            divides = isinstance(around, Binary) and around.op == "/" and around.right is node
            divisor = text if isinstance(node, Name | Number | Call) else f"({text})"
            self.texts.append((id(node), f"1 / {divisor}" if divides else text))

    def constant_texts(self) -> dict[str, bool]:
        found = {}
        for node, text in self.texts:
            found[text] = found.get(text, False) or node in self.direct
        return found

    def visit(self, node: Node) -> None:
        for child in children(node):
            if self.depends(child):
                self.visit(child)
            else:
                self.read(child)

    def read(self, node: Node) -> None:
        """Mark a value that depends on no state, and what it is a product or an exponential of."""
        if id(node) in self.direct:
            return
        self.direct.add(id(node))
        if self.is_constant(node):
            return
        match node:
            case Name(id=name) if name in self.assigned:
                self.read(self.assigned[name])
            case Unary(operand=operand):
                self.read(operand)
            case Binary(op="*" | "/" | "@", left=left, right=right):
                self.read(left), self.read(right)
            case Call(function=function, args=args) if function.id in TRANSPARENT:
                for arg in args:
                    self.read(arg)

    def readings(self, axes: Mapping[str, tuple[str, ...]]) -> Iterator[Reading]:
        for at, (node, line, target, recurrent) in enumerate(self.found):
            if f"#{at}" in axes:
                yield Reading(f"#{at}", node, line, axes[f"#{at}"], recurrent, id(node) in self.direct, target)


def given_outputs(definition: Definition) -> list[str]:
    """What a definition gives where the file names no outputs: values that no line reads, and final states.

    definition: each name assigned once.
    """
    read = {name for each in (*definition.let, *definition.step) for name in names_in(each.value)}
    targets = dict.fromkeys(each.target.id for each in definition.step)
    return [name for name in targets if name not in read and name not in definition.states] + list(definition.finals)
