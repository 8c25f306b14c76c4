"""The file of a stage that is still to be written: contract, docstring, and a reference made of the definition's lines.

The reference is slow and right: a value token by token at once, a state and an output by a loop over the tokens.
"""

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...stages._contract import Port
from ..definition.block import Assignment
from ..definition.types import HEADS
from ..expression import Name, Node, names_in
from .missing import Missing
from .torch_text import Text, Writer


@dataclass(frozen=True)
class Stub:
    """name: of the stage. inputs: with the definition's words for each. body: lines of the reference."""

    name: str
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    params: tuple[str, ...]
    text: str

    @property
    def contract_words(self) -> str:
        inputs = ", ".join(f"{name} {port_words(port)}" for name, port in self.inputs.items())
        outputs = ", ".join(f"{name} {port_words(port)}" for name, port in self.outputs.items())
        params = f", with {', '.join(self.params)}" if self.params else ""
        return f"{inputs}{params} -> {outputs}"


def port_words(port: Port) -> str:
    parts = [f"[{port.shape}]", port.dtype, *([port.unit] if port.unit else []), *([port.where] if port.where else [])]
    return " ".join(parts)


def stub_of(missing: Missing, pipeline: str, taken: Sequence[str]) -> Stub:
    """taken: names of the stages that there are."""
    body = Body(missing)
    lines = body.value_lines() if missing.kind == "value" else body.loop_lines()
    name = stage_name(missing, pipeline, taken)
    assigned = {line.partition(" = ")[0] for line in lines}
    axes = [axis for axis in used_names(lines, [*body.axes, "B", "T", "C", "N"]) if axis not in assigned]
    if missing.kind != "value" and "C" not in axes:
        axes.append("C")
    params = tuple(used_names(lines, list(missing.case.params)))
    text = "\n".join([*docstring(missing, name), "", *imports(body.ports, missing.outputs), "",
                      *contract(body.ports, missing.outputs, params), "", "",
                      *function(body.ports, [*axes, *params], lines)]) + "\n"  # fmt: skip
    return Stub(name, dict(body.ports), dict(missing.outputs), params, text)


def stage_name(missing: Missing, pipeline: str, taken: Sequence[str]) -> str:
    """NAME_WHAT, WHAT being the name that the statement assigns, or its text in letters."""
    assigned = missing.reached.by_node.get(id(missing.node)) if missing.node is not None else None
    what = assigned.target if assigned and assigned.target else "_".join(missing.names) or missing.text
    if missing.kind == "value" and what == missing.text:
        what = "decay" if "g" in missing.outputs else re.sub(r"\W+", "_", missing.text).strip("_")[:24].strip("_")
    name, number = f"{pipeline}_{what}"[:60], 2
    while name in taken:
        name, number = f"{pipeline}_{what}"[:60] + f"_{number}", number + 1
    return name


def used_names(lines: Sequence[str], names: Sequence[str]) -> list[str]:
    text = "\n".join(lines)
    return [name for name in dict.fromkeys(names) if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)]


@dataclass
class Body:
    """The lines of a reference, and the ports that they turn out to read. streams: port -> its text at one token."""

    missing: Missing
    ports: dict[str, Port] = field(default_factory=dict)
    streams: dict[str, str] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)

    @property
    def reached(self):
        return self.missing.reached

    @property
    def head(self) -> str | None:
        """The head axis that values are repeated for."""
        return next((axis for port in self.missing.outputs.values() for axis in port.axes if axis in HEADS), None)

    @property
    def axes(self) -> list[str]:
        return [axis for axis in self.missing.case.sizes if axis not in ("NT",)]

    def value_lines(self) -> list[str]:
        text = self.writer(per_token=False).text(self.missing.node)
        code = f"torch.log({text.code})" if self.missing.log else text.code
        (output,) = self.missing.outputs
        return [*self.setup, f'return {{"{output}": {code}}}']

    def writer(self, per_token: bool) -> Writer:
        case = self.missing.case
        numbers = {name: Text(name, None) for name in (*case.params, *self.axes)}
        states = {name: Text(python(name), axes) for name, axes in case.readings.state_axes.items()}
        writer = Writer({**numbers, **states}, lambda node: self.leaf(node, writer, per_token))
        return writer

    def leaf(self, node: Node, writer: Writer, per_token: bool) -> Text | None:
        """A value that comes in at a port; a name that a line assigns without a state, as that line's right side."""
        reached, missing = self.reached, self.missing
        reading = reached.by_node.get(id(node))
        if reading is None:
            return None
        found = reached.value(node, recurrent=missing.kind == "value")
        if found is not None and (missing.kind != "value" or found.value.producer is None or reading.recurrent):
            name = self.port_of(node, found)
            return Text(self.streams[name] if per_token else name, reading.axes)
        if isinstance(node, Name):
            if node.id in reached.assigned and not reading.recurrent:
                tree = reached.assigned[node.id]
                text = writer.text(tree)
                return Text(text.code, text.axes, text.atom)
            if node.id in missing.case.readings.value_axes:
                return Text(python(node.id), reading.axes)
        return None

    def port_of(self, node: Node, found) -> str:
        """The port of a found value: an input's own name, else that of the line, else that of the stage."""
        value = found.value
        reading = self.reached.by_node[id(node)]
        step = found.ways[0].stage.name if found.ways else None
        name = value.name if value.producer is None else reading.target or (node.id if isinstance(node, Name) else step)
        name = python(name)
        if name not in self.ports:
            spec = self.missing.case.spec.inputs.get(value.name)
            optional = spec is not None and spec.optional
            self.ports[name] = Port(" ".join(map(str, value.axes)), value.dtype, unit=value.unit, optional=optional)
            self.setup += laid_out(name, tuple(map(str, value.axes)), self.head)
            self.streams[name] = f"{name}_t" if "T" in value.axes else name
        return name

    def loop_lines(self) -> list[str]:
        missing, case = self.missing, self.missing.case
        writer = self.writer(per_token=True)
        states = list(missing.names) if missing.kind == "state" else [state for state, _ in missing.states.values()]
        inside = [line for each in self.needed() for line in self.statement(each, writer)]
        starts = self.starts(states, writer)
        entering = {state: f"entering_{state}" if len(states) > 1 else "entering" for state in states}
        reads = [f"{self.streams[name]} = {name}[:, t]" for name, port in self.ports.items() if "T" in port.axes]
        stream = next((name for name, port in self.ports.items() if "T" in port.axes), None)
        lines = [*self.setup, *([f"T = {stream}.shape[1]"] if stream else [])]
        if missing.kind == "state":
            lines += [*starts, *(f"{entering[state]} = []" for state in states)]
            first = [f"    {entering[state]}.append({python(state)})" for state in states]
            given = [x for state, (h, end) in zip(states, pairs(missing.outputs)) for x in self.results(state, h, end, entering)]
            after = []
        else:
            (output,) = missing.outputs
            lines.append("rows = []")
            first = starts
            after = [f"rows.append({python(output)})"]
            given = [f'return {{"{output}": {stacked("rows", self.empty(missing.outputs[output]))}}}']
        head = ["for t in range(T):", *(["    if t % C == 0:"] if first else []), *(f"    {line}" for line in first)]
        lines += [*head, *(f"    {line}" for line in (*reads, *inside, *after))]
        if missing.kind == "state":
            given = ["return {" + ", ".join(given) + "}"]
        return [*lines, *given]

    def results(self, state: str, h: str, end: str, entering: Mapping[str, str]) -> list[str]:
        shape = ", ".join(self.missing.outputs[h].axes[2:])
        empty = f"{python(state)}.new_zeros(B, 0, {shape})"
        return [f'"{h}": {stacked(entering[state], empty)}', f'"{end}": {python(state)}']

    def empty(self, port: Port) -> str:
        some = next(name for name, each in self.ports.items() if each.dtype != "int")
        return f"{some}.new_zeros({', '.join('0' if axis == 'T' else axis for axis in port.axes)})"

    def needed(self) -> list[Assignment]:
        """The recurrent lines that lead to what is missing, in the file's order."""
        case = self.missing.case
        from .reached import depends_on

        names = depends_on(self.reached.search, frozenset(self.missing.names))
        wanted = []
        for each in case.readings.original.step:
            reading = self.reached.by_node.get(id(each.value))
            if each.target.id in names and (reading is None or reading.recurrent):
                wanted.append(each)
        return wanted

    def statement(self, each: Assignment, writer: Writer) -> list[str]:
        line = f"{python(each.target.id)} = {writer.text(each.value).code}"
        if each.condition is None:
            return [line]
        return [f"if {python(each.condition.id)} is not None:", f"    {line}"]

    def starts(self, states: Sequence[str], writer: Writer) -> Iterator[str]:
        missing, case = self.missing, self.missing.case
        heads = [case.head] if case.head else []
        if missing.kind == "output":
            lines = []
            for port, (state, found) in missing.states.items():
                axes = [str(axis) for axis in found.value.axes]
                own = tuple(axis for axis in axes if axis not in ("B", "NT") and axis not in HEADS)
                self.ports[port] = Port(" ".join(axes), found.value.dtype, unit=found.value.unit)
                turned = "" if own == case.readings.state_axes[state] else ".mT"
                lines.append(f"    {python(state)} = {port}[:, t // C]{turned}")
            return lines
        lines = []
        for state in states:
            initial = case.readings.original.states[state]
            axes = [*heads, *case.readings.state_axes[state]]
            zeros = f"{self.any_port()}.new_zeros({', '.join(['B', *axes])})"
            if initial.input in case.values:
                value = case.values[initial.input]
                optional = case.spec.inputs[initial.input].optional
                self.ports[initial.input] = Port(" ".join(map(str, value.axes)), value.dtype, unit=value.unit, optional=optional)
                given = f"{zeros} if {initial.input} is None else {initial.input}" if optional else initial.input
            elif not names_in(initial.value) & case.values.keys():
                given = zeros
            else:
                given = self.initial(initial.value, axes)
            lines.append(f"{python(state)} = {given}")
        return lines

    def initial(self, node: Node, axes: Sequence[str]) -> str:
        """The value of a state before the first token, from inputs that have no tokens."""
        case, values = self.missing.case, {}
        for name in sorted(names_in(node) & case.values.keys()):
            value = case.values[name]
            optional = case.spec.inputs[name].optional
            self.ports[name] = Port(" ".join(map(str, value.axes)), value.dtype, unit=value.unit, optional=optional)
            own = tuple(str(axis) for axis in value.axes if axis not in ("B", "N") and axis not in HEADS)
            default = case.spec.inputs[name].default
            values[name] = Text(f"({name} if {name} is not None else {float(default.value)})", own) if default else Text(name, own)
        numbers = {name: Text(name, None) for name in (*case.params, *self.axes)}
        return f"({Writer({**numbers, **values}).text(node).code}).expand({', '.join(['B', *axes])})"

    def any_port(self) -> str:
        return next(name for name, port in self.ports.items() if port.dtype != "int" and not port.optional)


def pairs(outputs: Mapping[str, Port]) -> list[tuple[str, str]]:
    names = list(outputs)
    return list(zip(names[::2], names[1::2]))


def stacked(rows: str, empty: str) -> str:
    return f"torch.stack({rows}, 1) if {rows} else {empty}"


def python(name: str) -> str:
    """A definition's name as one of Python, apart from those that the reference has for itself."""
    own = {"t", "rows", "entering", "torch", "B", "T", "C", "N", "NT"}
    return f"{name}_" if keyword.iskeyword(name) or name in own else name


def laid_out(name: str, axes: tuple[str, ...], head: str | None) -> list[str]:
    """Lines that bring a port to [B, T, heads, inner axes...], its heads repeated for the op's."""
    order = [axis for axis in ("B", "T") if axis in axes] + [axis for axis in axes if axis in HEADS]
    order += [axis for axis in axes if axis not in order]
    lines = []
    if tuple(order) != axes:
        lines.append(f"{name} = {name}.permute({', '.join(str(axes.index(axis)) for axis in order)})")
    if head and "T" in axes and not any(axis in HEADS for axis in axes):
        lines.append(f"{name} = {name}.unsqueeze({order.index('T') + 1})")
    own = next((axis for axis in order if axis in HEADS), None)
    if head and own and own != head:
        lines.append(f"{name} = {name}.repeat_interleave({head} // {own}, {order.index(own)})")
    if "T" in axes and "B" not in axes:
        lines.append(f"{name} = {name}.unsqueeze(0)")
    return lines


def docstring(missing: Missing, name: str) -> list[str]:
    what = {
        "value": f"{missing.text}, as the definition of {missing.case.spec.name} has it.",
        "state": f"The state {missing.text} of {missing.case.spec.name}, entering each chunk and at the end.",
        "output": f"The output {missing.text} of {missing.case.spec.name}, read from the state that enters each chunk.",
    }[missing.kind]
    lines = [] if missing.kind == "value" else ["", *(f"    {each.line.text}" for each in Body(missing).needed())]
    still = "" if missing.kind == "value" else " token by token"
    return [f'"""{what}', *lines, "", f"Written by `chunkwise new --stub`: the reference is the definition{still}. Kernels and a vjp may follow.", '"""']


def imports(inputs: Mapping[str, Port], outputs: Mapping[str, Port]) -> list[str]:
    f32 = any(port.dtype == "f32" for port in (*inputs.values(), *outputs.values()))
    integer = any(port.dtype == "int" for port in (*inputs.values(), *outputs.values()))
    names = [*(["F32"] if f32 else []), *(["INT"] if integer else []), "Contract", "Port"]
    return ["import torch", "", f"from chunkwise.stages._contract import {', '.join(names)}"]


def contract(inputs: Mapping[str, Port], outputs: Mapping[str, Port], params: Sequence[str]) -> list[str]:
    lines = ["CONTRACT = Contract(", "    inputs={"]
    lines += [f'        "{name}": {port_code(port)},' for name, port in inputs.items()]
    lines += ["    },", "    outputs={"]
    lines += [f'        "{name}": {port_code(port)},' for name, port in outputs.items()]
    lines.append("    },")
    if params:
        lines.append(f"    params={{{', '.join(f'{chr(34)}{name}{chr(34)}: None' for name in params)}}},")
    return [*lines, ")"]


def port_code(port: Port) -> str:
    parts = [f'"{port.shape}"']
    parts += {"f32": ["F32"], "int": ["INT"]}.get(port.dtype, [])
    parts += [f'unit="{port.unit}"'] if port.unit else []
    parts += [f'where="{port.where}"'] if port.where else []
    parts += ["optional=True"] if port.optional else []
    return f"Port({', '.join(parts)})"


def function(ports: Mapping[str, Port], keywords: Sequence[str], lines: Sequence[str]) -> list[str]:
    shapes = ", ".join(f"{name} [{', '.join(port.axes)}]" for name, port in ports.items())
    names = ", ".join([*ports, *(["*", *keywords] if keywords else [])])
    return [f"def reference({names}):", f'    """{shapes}."""', *(f"    {line}" for line in lines)]
