"""A whole definition, line by line, under every set of inputs that may be absent."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..expression import ExpressionError, Name, Node, UnknownName, hint
from .block import Assignment, Definition
from .dense_types import dense_type
from .problems import DefinitionError, Line, Problem, problem_in
from .types import Axes, Poisoned, Scope, Type, inner, number, shown, type_of


@dataclass(frozen=True)
class Types:
    """Inner axes by name: of the states, of every assigned value at the end of the lines, of the final outputs."""

    states: Mapping[str, Axes]
    values: Mapping[str, Axes]
    finals: Mapping[str, Axes]


@dataclass
class _Pass:
    """One reading of a definition, with some of the optional inputs absent."""

    definition: Definition
    scope: Scope
    optional: Collection[str] | None
    problems: list[Problem] = field(default_factory=list)
    states: dict[str, Type] = field(default_factory=dict)

    def run(self) -> Types:
        definition, scope = self.definition, self.scope
        scope.states = definition.states
        for each in definition.let:
            self.assign(each)
        for name, initial in definition.states.items():
            self.states[name] = self.guarded(initial.line, lambda initial=initial: self.initial(initial.value))
        scope.values |= self.states
        lines = definition.step or definition.dense
        scope.later = {each.target.id for each in lines} - scope.values.keys()
        for each in lines:
            self.assign(each)
        states = {name: type.axes for name, type in self.states.items() if type}
        values = {name: type.axes for name, type in scope.values.items() if type}
        finals = {name: states[final.state.id] for name, final in definition.finals.items() if final.state.id in states}
        return Types(states, values, finals)

    def guarded(self, line: Line, compute) -> Type | None:
        try:
            return compute()
        except ExpressionError as error:
            self.problems.append(problem_in(line, error))
        except Poisoned:
            pass
        return None

    def initial(self, node: Node) -> Type:
        scope = self.scope
        if isinstance(node, Name) and node.id in scope.inputs:
            type = scope.inputs[node.id]  # absent: zero
        else:
            type = number(type_of(node, scope), node, "a state")
        if type.token:
            raise ExpressionError("an initial state cannot differ from token to token", node.start, node.end)
        return type

    def assign(self, each: Assignment) -> None:
        scope, target = self.scope, each.target
        dropped = each.condition is not None and each.condition.id in scope.absent
        type = self.guarded(each.line, lambda: self.assigned(each, dropped))
        if not dropped:
            scope.values[target.id] = type
            scope.dropped.pop(target.id, None)
        elif target.id not in scope.values:
            scope.dropped[target.id] = each.condition.id

    def assigned(self, each: Assignment, dropped: bool) -> Type | None:
        scope, target = self.scope, each.target
        if each.condition is not None:
            self.check_condition(each.condition)
        if dropped:
            return None
        if target.id in scope.params or target.id in scope.axes:
            kind = "a parameter" if target.id in scope.params else "an axis"
            raise ExpressionError(f"{target.id!r} is {kind}", target.start, target.end, "take another name")
        type = type_of(each.value, scope)
        state = self.states.get(target.id)
        if state is not None and (state.axes != type.axes or type.boolean):
            got = "a comparison" if type.boolean else shown(type.axes)
            message = f"state {target.id!r} is {shown(state.axes)}, this line gives {got}"
            help = "transpose(x) swaps two axes" if len(type.axes) == 2 and type.axes == state.axes[::-1] else None
            raise ExpressionError(message, each.value.start, each.value.end, help)
        return type

    def check_condition(self, condition: Name) -> None:
        if condition.id not in self.scope.inputs:
            help = hint(condition.id, self.scope.inputs) or f"its inputs are {', '.join(self.scope.inputs)}"
            raise UnknownName(f"no input {condition.id!r}", condition.start, condition.end, help)
        if self.optional is not None and condition.id not in self.optional:
            raise ExpressionError(f"input {condition.id!r} is never absent", condition.start, condition.end)


def check(
    definition: Definition,
    inputs: Mapping[str, Axes],
    axes: Collection[str] = (),
    params: Collection[str] = (),
    absent: Collection[str] = (),
    optional: Collection[str] | None = None,
) -> tuple[Types, list[Problem]]:
    """One reading, with these inputs absent and without a default (an absent initial state is 0)."""
    types = {name: Type(inner(shape), token="T" in shape) for name, shape in inputs.items()}
    known = {axis for shape in inputs.values() for axis in shape} | set(axes)
    scope = Scope(types, params, known, set(absent) - definition.initial_inputs)
    scope.dense = dense_type if definition.dense else None
    reading = _Pass(definition, scope, optional)
    return reading.run(), reading.problems


def typecheck(
    definition: Definition,
    inputs: Mapping[str, Axes],
    axes: Collection[str] = (),
    params: Collection[str] = (),
    optional: Collection[str] = (),
    defaults: Collection[str] = (),
) -> Types:
    """The inner axes of everything, with all inputs given.

    inputs: name -> declared axes, lanes and heads included. axes: further axis names (``C``, derived ones).
    optional: inputs that may be absent; each is also tried absent alone, and all together. defaults: those of
    them that then have a value. Raises DefinitionError with every problem.
    """
    types, problems = check(definition, inputs, axes, params, (), optional)
    gone = [name for name in optional if name not in defaults]
    for absent in [(name,) for name in gone] + [gone]:
        problems += check(definition, inputs, axes, params, absent, optional)[1]
    if problems:
        raise DefinitionError({(id(each.line), each.start, each.message): each for each in problems}.values())
    return types
