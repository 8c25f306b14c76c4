"""From the trees of a checked definition to a program."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..expression import Binary, Call, ExpressionError, Name, Node, Number, Unary
from ..expression.number import binary_number, guarded
from .block import Assignment, Definition
from .builder import Builder, Dense, Diagonal, Outer, Value
from .functions import FUNCTIONS, of_numbers
from .problems import DefinitionError, problem_in
from .program import HEAD, LOOP, SEQUENCE, TOKEN, Input, Program, State, StateSlot
from .types import Axes, inner


@dataclass
class Lowering:
    """numbers: parameters and axis sizes by name. filled: value of each absent input. packed: B = 1 stands for
    all sequences, so that an input without T is the same for them."""

    inputs: Mapping[str, Axes]
    numbers: Mapping[str, float]
    filled: Mapping[str, float]
    packed: bool
    builder: Builder = field(default_factory=Builder)
    values: dict[str, Value] = field(default_factory=dict)

    def read(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name not in self.inputs:
            return self.numbers[name]
        declared = self.inputs[name]
        axes = inner(declared)
        if name in self.filled:
            return self.builder.filled(self.filled[name], axes) if axes else self.filled[name]
        by_sequence = "N" in declared or ("B" in declared and not self.packed)
        level = TOKEN if "T" in declared else SEQUENCE if by_sequence else HEAD
        return Dense(self.builder.add(Input(name), level, len(axes)), axes)

    def value(self, node: Node) -> Value:
        match node:
            case Number(value=value):
                return value
            case Name(id=name):
                return self.read(name)
            case Unary(operand=operand):
                value = self.value(operand)
                return -value if is_number(value) else self.builder.negative(value)
            case Binary(op=op, left=left, right=right):
                left, right = self.value(left), self.value(right)
                if op == "@":
                    return self.builder.matmul(left, right)
                if is_number(left) and is_number(right):
                    return binary_number(node, op, left, right)
                return self.builder.operate(op, left, right)
        return self.call(node)

    def call(self, node: Call) -> Value:
        name, builder = node.function.id, self.builder
        function = FUNCTIONS[name]
        if function.rule == "fill":
            return builder.filled(float(name == "ones"), tuple(arg.id for arg in node.args))
        values = [self.value(arg) for arg in node.args]
        match function.rule:
            case "map" | "select":
                if all(is_number(value) for value in values):
                    return guarded(node, lambda: of_numbers(name, values))
                return builder.map(function.compute, *values)
            case "reduce" | "along":
                return self.over_axis(node, builder.dense(values[0]))
            case "outer":
                return Outer(*(builder.dense(value) for value in values))
            case "diag":
                return Diagonal(builder.dense(values[0]))
        return self.transposed(values[0])

    def over_axis(self, node: Call, x: Dense) -> Dense:
        function = FUNCTIONS[node.function.id]
        at = x.axes.index(node.axis.id)
        axes = x.axes if function.rule == "along" else x.axes[:at] + x.axes[at + 1 :]
        return self.builder.apply(function.compute, x.id, axes=axes, static=(at - len(x.axes),))

    def transposed(self, value: Value) -> Value:
        match value:
            case Outer(left=left, right=right):
                return Outer(right, left)
            case Diagonal():
                return value
        return self.builder.apply(FUNCTIONS["transpose"].compute, value.id, axes=value.axes[::-1])

    def assign(self, each: Assignment) -> None:
        try:
            self.values[each.target.id] = self.value(each.value)
        except ExpressionError as error:
            raise DefinitionError([problem_in(each.line, error)]) from None

    def held(self, value: Value) -> Dense:
        """A tensor even where the value is a plain number: states and outputs have lanes."""
        return self.builder.filled(value, ()) if is_number(value) else self.builder.dense(value)


def is_number(value: Value) -> bool:
    return not isinstance(value, (Dense, Outer, Diagonal))


def lower(definition: Definition, lowering: Lowering, absent: Collection[str]) -> Program:
    """The program of one reading of the definition, with these inputs absent and without a default."""
    builder, values = lowering.builder, lowering.values

    def kept(lines):
        return [each for each in lines if each.condition is None or each.condition.id not in absent]

    for each in kept(definition.let):
        lowering.assign(each)
    initial = {}
    for name, state in definition.states.items():
        try:
            initial[name] = lowering.held(lowering.value(state.value))
        except ExpressionError as error:
            raise DefinitionError([problem_in(state.line, error)]) from None
    entries = {name: Dense(builder.add(State(name), LOOP, len(x.axes)), x.axes) for name, x in initial.items()}
    values |= entries
    for each in kept(definition.step):
        lowering.assign(each)
    ends = {name: lowering.held(value) for name, value in values.items()}
    states = {
        name: StateSlot(entries[name].id, ends[name].id, initial[name].id, initial[name].axes) for name in entries
    }
    return Program(tuple(builder.operations), states, {name: (end.id, end.axes) for name, end in ends.items()})
