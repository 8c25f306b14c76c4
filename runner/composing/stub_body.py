"""The lines of a stub's reference: a value token by token at once, a state or an output by a loop over the tokens."""

import keyword
from dataclasses import dataclass, field, replace

from ...stages._contract import Port
from ..definition.block import Assignment
from ..definition.types import HEADS
from ..expression import Name, Node, names_in
from .feeding import Found
from .missing import Missing
from .reached import Reached, depends_on
from .torch_text import Text, Writer

OWN = {"t", "rows", "entering", "torch", "like", "B", "T", "C", "N", "NT"}
"""Names that a reference has for itself."""


@dataclass
class Body:
    """The lines of a reference, and the ports that they turn out to read.

    streams: port -> its text at one token. repeated: (head, of the op) where a port's heads are repeated. Of a port
    without a stream the sizes alone are read.
    """

    missing: Missing
    ports: dict[str, Port] = field(default_factory=dict)
    streams: dict[str, str] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)
    repeated: dict[tuple[str, str], None] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    @property
    def reached(self) -> Reached:
        return self.missing.reached

    @property
    def head(self) -> str | None:
        """The head axis that values are repeated for."""
        return next((axis for port in self.missing.outputs.values() for axis in port.axes if axis in HEADS), None)

    @property
    def numbers(self) -> dict[str, Text]:
        case = self.missing.case
        return {name: Text(name, None) for name in (*case.params, *case.sizes)}

    def lines(self) -> list[str]:
        lines = self.value_lines() if self.missing.kind == "value" else self.loop_lines()
        if any(uses_like(line) for line in lines):
            lines.insert(0, f"like = {self.any_port()}")
        return lines

    def value_lines(self) -> list[str]:
        text = self.writer(per_token=False).text(self.missing.node)
        code = f"torch.log({text.code})" if self.missing.log else text.code
        (output,) = self.missing.outputs
        return [*self.setup, f'return {{"{output}": {code}}}']

    def loop_lines(self) -> list[str]:
        """A loop over the tokens: what a chunk starts with, the lines of a step, what a token leaves."""
        missing, writer = self.missing, self.writer(per_token=True)
        inside = [line for each in self.needed() for line in self.statement(each, writer)]
        self.give_sizes()
        first, before, after, results = self.of_state() if missing.kind == "state" else self.of_output()
        reads = [f"{own} = {self.if_given(name, f'{name}[:, t]')}" for name, own in self.streams.items() if own != name]
        stream = next((name for name, port in self.ports.items() if "T" in port.axes and not port.optional), None)
        length = [f"T = {stream}.shape[{self.ports[stream].axes.index('T') if stream not in self.streams else 1}]"]
        loop = ["if t % C == 0:", *(f"    {line}" for line in first), *reads, *inside, *after]
        results = ", ".join(f'"{name}": {code}' for name, code in results.items())
        return [
            *self.setup, *length, *before,
            "for t in range(T):", *(f"    {line}" for line in loop),
            f"return {{{results}}}",
        ]  # fmt: skip

    def give_sizes(self) -> None:
        """Ports for the inputs that give an axis of the outputs its size, where no value that is read has it."""
        read = [port for port in self.ports.values() if not port.optional]
        known = {axis for port in read for axis in port.axes} | {"NT", "N", *self.missing.case.spec.axes}
        known |= {str(axis) for _, found in self.missing.states.values() for axis in found.value.axes}
        lacking = {"T", *(axis for port in self.missing.outputs.values() for axis in port.axes)} - known
        while lacking:
            givers = [found for found in self.reached.search.found if self.gives(found, lacking)]
            most = max(givers, key=lambda found: len(lacking.intersection(found.value.axes)))
            self.names[most.id] = python(most.value.name)
            self.ports[self.names[most.id]] = replace(self.port(most), doc="for its sizes alone")
            lacking.difference_update(most.value.axes)

    def gives(self, found: Found, lacking: set[str]) -> bool:
        of_file = found.value.producer is None and found.id not in self.names
        return of_file and not lacking.isdisjoint(found.value.axes) and not self.port(found).optional

    def of_state(self) -> tuple[list[str], list[str], list[str], dict[str, str]]:
        """(lines at a chunk's start, before the loop, after a token, results by port) of a stage of states."""
        first, before, results, ports = [], [], {}, list(self.missing.outputs)
        several = len(self.missing.names) > 1
        for at, state in enumerate(self.missing.names):
            h, end = ports[2 * at : 2 * at + 2]
            entering = f"entering_{state}" if several else "entering"
            before += [f"{python(state)} = {self.initial(state)}", f"{entering} = []"]
            first.append(f"{entering}.append({python(state)})")
            shape = ", ".join(["B", "0", *self.missing.outputs[h].axes[2:]])
            results[h] = stacked(entering, f"{python(state)}.new_zeros({shape})")
            results[end] = python(state)
        return first, before, [], results

    def of_output(self) -> tuple[list[str], list[str], list[str], dict[str, str]]:
        """The same of a stage that reads an output from the states that enter each chunk."""
        first, case = [], self.missing.case
        for port, (state, found) in self.missing.states.items():
            axes = [str(axis) for axis in found.value.axes]
            own = tuple(axis for axis in axes if axis not in ("B", "NT") and axis not in HEADS)
            turned = "" if own == case.readings.state_axes[state] else ".mT"
            self.ports[port] = Port(" ".join(axes), found.value.dtype, unit=found.value.unit)
            first.append(f"{python(state)} = {port}[:, t // C]{turned}")
        ((name, port),) = self.missing.outputs.items()
        empty = f"{self.any_port()}.new_zeros({', '.join('0' if axis == 'T' else axis for axis in port.axes)})"
        return first, ["rows = []"], [f"rows.append({python(name)})"], {name: stacked("rows", empty)}

    def writer(self, per_token: bool) -> Writer:
        case = self.missing.case
        states = {name: Text(python(name), axes) for name, axes in case.readings.state_axes.items()}
        writer = Writer({**self.numbers, **states}, lambda node: self.leaf(node, writer, per_token))
        return writer

    def leaf(self, node: Node, writer: Writer, per_token: bool) -> Text | None:
        """A value that comes in at a port; a name that a line assigns without a state, as that line's right side."""
        reached, value_alone = self.reached, self.missing.kind == "value"
        reading = reached.by_node.get(id(node))
        if reading is None:
            return None
        found = reached.value(node, recurrent=value_alone)
        if found is not None and (not value_alone or found.value.producer is None or reading.recurrent):
            name = self.port_of(node, found)
            return Text(self.streams[name] if per_token else name, reading.axes)
        if not isinstance(node, Name):
            return None
        if node.id in reached.assigned and not reading.recurrent:
            return writer.text(reached.assigned[node.id])
        return Text(python(node.id), reading.axes) if node.id in self.missing.case.readings.value_axes else None

    def port_of(self, node: Node, found: Found) -> str:
        """The port of a found value: an input's own name, else that of the line, else that of the port it left."""
        if found.id not in self.names:
            name, axes = self.port_name(node, found), tuple(map(str, found.value.axes))
            self.names[found.id] = name
            self.ports[name] = self.port(found)
            self.setup += [f"{name} = {self.if_given(name, code)}" for code in self.laid_out(name, axes)]
            self.streams[name] = f"{name}_t" if "T" in axes else name
        return self.names[found.id]

    def port_name(self, node: Node, found: Found) -> str:
        if found.value.producer is None:
            return python(found.value.name)
        own = next(port for port, each in found.ways[0].outputs.items() if each is found)
        names = [self.reached.by_node[id(node)].target, node.id if isinstance(node, Name) else None, own]
        taken = {*self.ports, *self.missing.outputs}
        free = [python(name) for name in (*names, *(f"x{n}" for n in range(len(taken) + 1))) if name]
        return next(name for name in free if name not in taken)

    def port(self, found: Found) -> Port:
        value = found.value
        spec = self.missing.case.spec.inputs.get(value.name)
        optional = spec is not None and spec.optional
        return Port(" ".join(map(str, value.axes)), value.dtype, unit=value.unit, optional=optional)

    def laid_out(self, name: str, axes: tuple[str, ...]) -> list[str]:
        """Steps that bring a port to [B, T, heads, inner axes...], its heads repeated for the op's."""
        own = next((axis for axis in axes if axis in HEADS), None)
        order = [axis for axis in ("B", "T", own) if axis in axes]
        order += [axis for axis in axes if axis not in order]
        lines = []
        if tuple(order) != axes:
            lines.append(f"{name}.permute({', '.join(str(axes.index(axis)) for axis in order)})")
        if self.head and "T" in axes and own is None:
            lines.append(f"{name}.unsqueeze({order.index('T') + 1})")
        if self.head and own and own != self.head:
            lines.append(f"{name}.repeat_interleave({self.head} // {own}, {order.index(own)})")
            self.repeated[(own, self.head)] = None
        if "T" in axes and "B" not in axes:
            lines.append(f"{name}.unsqueeze(0)")
        return lines

    def if_given(self, name: str, code: str) -> str:
        return f"None if {name} is None else {code}" if self.ports[name].optional else code

    def needed(self) -> list[Assignment]:
        """The recurrent lines that lead to what is missing, in the file's order."""
        names = depends_on(self.reached.search, frozenset(self.missing.names))
        readings = (
            (each, self.reached.by_node.get(id(each.value))) for each in self.missing.case.readings.original.step
        )
        return [each for each, reading in readings if each.target.id in names and (not reading or reading.recurrent)]

    def statement(self, each: Assignment, writer: Writer) -> list[str]:
        line = f"{python(each.target.id)} = {writer.text(each.value).code}"
        if each.condition is None:
            return [line]
        return [f"if {python(each.condition.id)} is not None:", f"    {line}"]

    def initial(self, state: str) -> str:
        """A state before the first token, from inputs that have no tokens."""
        case, node = self.missing.case, self.missing.case.readings.original.states[state].value
        shape = ", ".join(["B", *([case.head] if case.head else []), *case.readings.state_axes[state]])
        values, zeros = {}, f"{self.any_port()}.new_zeros({shape})"
        for found in self.reached.search.found:
            name = found.value.name
            if found.value.producer is None and name in names_in(node):
                self.ports[name] = self.port(found)
                own = tuple(str(axis) for axis in found.value.axes if axis not in ("B", "N") and axis not in HEADS)
                values[name] = Text(self.given(name), own)
        if not values:
            return zeros
        if isinstance(node, Name):
            return f"{zeros} if {node.id} is None else {node.id}" if self.ports[node.id].optional else node.id
        return f"({Writer({**self.numbers, **values}).text(node).code}).expand({shape})"

    def given(self, name: str) -> str:
        """An input as the definition takes it, where it may be absent."""
        default = self.missing.case.spec.inputs[name].default
        return name if default is None else f"({name} if {name} is not None else torch.tensor({float(default.value)}))"

    def any_port(self) -> str:
        return next(name for name, port in self.ports.items() if port.dtype != "int" and not port.optional)


def uses_like(line: str) -> bool:
    return "like.new_full" in line or "dtype=like" in line


def stacked(rows: str, empty: str) -> str:
    return f"torch.stack({rows}, 1) if {rows} else {empty}"


def python(name: str) -> str:
    """A definition's name as one of Python, apart from those that a reference has for itself."""
    return f"{name}_" if keyword.iskeyword(name) or name in OWN else name
