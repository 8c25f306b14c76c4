"""From what a file declares to the type of a value: what unification recorded, retraced to its sources."""

from collections.abc import Iterable

from ..graphs.graph import Node, Value
from ..graphs.sizes import FOLLOWS
from ..graphs.unify import GLOBAL_AXES
from .answer import Line
from .axes import derived, fixed_axis
from .facts import Facts, shape_of
from .gradient_chain import gradient_step


def value_chain(facts: Facts, name: str) -> list[Line]:
    """The steps to a value, sources first, each axis retraced no further than it is needed; then its contract."""
    chain = Chain(facts)
    chain.want(name)
    chain.want_unit(name)
    return [*chain.lines(), *details(facts, facts.graph.values[name])]


class Chain:
    """Two walks: back from the values that are wanted, to find what they rest on; forward, to tell it in order.

    axes: value -> those of its axes that matter, by position. edges: (node, port) -> the stage's axes that the edge
    fixed. own: node -> axes that no edge fixed. units: values whose unit matters.
    """

    def __init__(self, facts: Facts):
        self.facts, self.graph = facts, facts.graph
        self.axes: dict[str, set[int]] = {}
        self.edges: dict[tuple[str, str], set[str]] = {}
        self.own: dict[str, set[str]] = {}
        self.units: set[str] = set()
        self.variables: dict[str, set[str]] = {}

    def want(self, name: str, positions: Iterable[int] | None = None) -> None:
        """Some axes of a value, all of them when no position is given."""
        value = self.graph.values[name]
        wanted = self.axes.setdefault(name, set())
        new = set(range(len(value.axes)) if positions is None else positions) - wanted
        wanted |= new
        if step := gradient_step(self.facts, name):
            for source in step.because:
                self.want(source)
        elif value.producer and new:
            node = self.graph.nodes[value.producer]
            self.want_axes(node, [node.stage.contract.outputs[value.port].axes[each] for each in new])

    def want_axes(self, node: Node, axes: Iterable[str]) -> None:
        """Axes of a stage: from the edge that fixed each, or from what it is computed from."""
        for axis in axes:
            if axis in node.bound_by:
                port = node.bound_by[axis].port
                self.edges.setdefault((node.id, port), set()).add(axis)
                self.want(node.inputs[port], [node.stage.contract.inputs[port].axes.index(axis)])
            elif axis in GLOBAL_AXES:
                self.own.setdefault(node.id, set()).add(axis)
                self.want_axes(node, FOLLOWS.get(axis, ()))

    def want_unit(self, name: str) -> None:
        value = self.graph.values[name]
        self.units.add(name)
        if value.producer and gradient_step(self.facts, name) is None:
            node = self.graph.nodes[value.producer]
            self.want_variables(node, variables(node.stage.contract.outputs[value.port].unit))

    def want_variables(self, node: Node, names: Iterable[str]) -> None:
        for name in names:
            if name in node.units_by:
                self.variables.setdefault(node.id, set()).add(name)
                source = node.units_by[name].value
                if source:
                    self.want(source, ())
                    self.want_unit(source)

    def lines(self) -> list[Line]:
        """Inputs, fixed axes, then every stage entry in running order."""
        lines = [input_line(self.facts, value) for name, value in self.graph.inputs.items() if name in self.axes]
        fixed = dict.fromkeys(axis for own in self.own.values() for axis in own if axis in self.facts.op.spec.axes)
        lines += [fixed_axis(self.facts, axis) for axis in fixed]
        for node in self.graph.nodes.values():
            lines += self.node_lines(node)
        steps = [gradient_step(self.facts, name) for name in self.graph.values if name in self.axes]
        return lines + [step for step in steps if step]

    def node_lines(self, node: Node) -> list[Line]:
        lines = [self.edge_line(node, port) for port in node.inputs if (node.id, port) in self.edges]
        lines += [line for axis in ("N", "NT") for line in self.own_line(node, axis)]
        for name in sorted(self.variables.get(node.id, ())):
            lines += self.unit_lines(node, name)
        because = tuple(line.fact for line in lines)
        made = [name for name in node.outputs.values() if self.axes.get(name)]
        return lines + [
            self.made_line(node, self.graph.values[name], because)
            for name in made
            if gradient_step(self.facts, name) is None
        ]

    def edge_line(self, node: Node, port: str) -> Line:
        source = self.graph.values[node.inputs[port]]
        axes = [axis for axis in node.stage.contract.inputs[port].axes if axis in self.edges[node.id, port]]
        text = f"{node.id}.{port} reads {source.name} {shape_of(source)}: {named(node, axes)}"
        return Line(text, node.bound_by[axes[0]].mark, f"{node.id}.{port}", (source.name,))

    def own_line(self, node: Node, axis: str) -> list[Line]:
        rule = derived(self.facts, axis) if axis in self.own.get(node.id, ()) else None
        return [Line(f"so {rule[0]}, for {node.id}", node.mark, f"{axis} of {node.id}", rule[1])] if rule else []

    def unit_lines(self, node: Node, name: str) -> list[Line]:
        """What fixed a unit variable of a stage, after what gave that value its unit."""
        origin = node.units_by[name]
        before = details(self.facts, self.graph.values[origin.value]) if origin.value else []
        text = f"{name} of {node.id} is {node.units[name] or 'no unit'}: {origin.text}"
        return [*before, Line(text, origin.mark, f"{name} of {node.id}", (origin.value,) if origin.value else ())]

    def made_line(self, node: Node, value: Value, because: tuple[str, ...]) -> Line:
        port, wanted = node.stage.contract.outputs[value.port], self.axes[value.name]
        whole = len(wanted) == len(value.axes)
        what = f"is {shape_of(value)}" if whole else f"has {named(node, [port.axes[each] for each in sorted(wanted)])}"
        text = f"so {value.name} {what}: the output {value.port} of {node.id} ({node.stage.name})"
        return Line(text, node.mark, value.name, because)


def named(node: Node, axes: Iterable[str]) -> str:
    """Axes of a stage with what they are in the pipeline, where that has another name."""
    return ", ".join(axis if node.axes.get(axis, axis) == axis else f"{axis} = {node.axes[axis]}" for axis in axes)


def variables(unit: str | None) -> list[str]:
    return [part.partition("}")[0] for part in (unit or "").split("{")[1:]]


def input_line(facts: Facts, value: Value) -> Line:
    entry = facts.op.spec.inputs[value.name]
    return Line(f"{value.name} is [{' '.join(entry.shape)}]: an input", entry.shape_mark, value.name)


def details(facts: Facts, value: Value) -> list[Line]:
    """Dtype, unit and laws of a value, each where it is declared; of a stage's output, all in its contract."""
    node = facts.producer(value)
    if node is not None:
        words = ", ".join(filter(None, [value.dtype, value.unit, *(law.text for law in value.laws)]))
        text = f"{value.name} is {words}: by the contract of {node.id} ({node.stage.name})"
        return [Line(text, node.mark, f"contract of {value.name}", (value.name,))]
    entry = facts.op.spec.inputs.get(value.name)
    if entry is None:
        return []
    lines = [(f"{value.name} is {value.dtype}", entry.dtype_mark or entry.mark, "dtype")]
    lines += [(f"{value.name} is {entry.unit}", entry.unit_mark, "unit")] if entry.unit else []
    lines += [(f"{value.name} is {written.value} everywhere", written.mark, "law") for written in entry.where]
    return [Line(text, mark, f"{part} of {value.name}", (value.name,)) for text, mark, part in lines]
