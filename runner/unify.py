"""The types of one stage's edges: axes, layout, dtype, unit and value laws, solved or refused.

A stage's axis names are its own; an edge binds them to the pipeline's. The first edge (in the contract's order)
that names an axis binds it; a later edge that disagrees is an error that names both. ``C``, ``NT``, ``N`` and
``T`` that no edge binds mean the pipeline's own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..stages import _laws
from ..stages._contract import Port
from . import codes
from .errors import Diagnostic, Note
from .graph import Term, Value
from .marks import Mark
from .spec import StageSpec
from .stage_library import Stage

GLOBAL_AXES = ("C", "NT", "N", "T", "B")
CONVERTED_BY_READER = "read it as {got}, or convert it in a stage of your own"


@dataclass
class Bindings:
    """What the edges of one stage have fixed so far; each with the edge that did it."""

    axes: dict[str, Term] = field(default_factory=dict)
    axis_edges: dict[str, tuple[str, Mark | None]] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    variable_edges: dict[str, tuple[str, Mark | None]] = field(default_factory=dict)


def written(terms) -> str:
    return " ".join(str(term) for term in terms)


def match_axes(edge: str, mark, port: Port, value: Value, bindings: Bindings) -> list[Diagnostic]:
    """Bind the port's axes to the value's, or say where they differ."""
    if len(port.axes) != len(value.axes):
        message = f"{edge} takes [{port.shape}], {value.name} is [{written(value.axes)}]"
        return [Diagnostic(codes.SHAPE, message, mark, (Note(f"{value.name} gets its shape here", value.mark),))]
    trial = {**bindings.axes}
    clashes = []
    for axis, term in zip(port.axes, value.axes):
        wanted = int(axis) if axis.isdigit() else trial.setdefault(axis, term)
        if wanted != term:
            clashes.append((axis, wanted, term))
    if not clashes:
        for axis in port.axes:
            if axis not in bindings.axes and not axis.isdigit():
                bindings.axes[axis] = trial[axis]
                bindings.axis_edges[axis] = (f"{edge} from {value.name}", mark)
        return []
    known = [trial.get(axis, axis) for axis in port.axes]
    swapped = sorted(map(str, known)) == sorted(map(str, value.axes))
    axis, wanted, term = clashes[0]
    notes = [Note(f"{value.name} gets its shape here", value.mark)]
    if axis in bindings.axis_edges:
        text, first = bindings.axis_edges[axis]
        notes.insert(0, Note(f"axis {axis} was first fixed to {wanted} by {text}", first))
    if swapped:
        message = f"{edge} takes [{written(known)}], {value.name} is laid out as [{written(value.axes)}]"
        return [Diagnostic(codes.LAYOUT, message, mark, tuple(notes), "the axes are the same, their order is not")]
    message = f"{edge} takes [{port.shape}] with {axis} = {wanted}, {value.name} is [{written(value.axes)}] with {term} there"
    return [Diagnostic(codes.SHAPE, message, mark, tuple(notes))]


def match_dtype(edge: str, mark, port: Port, value: Value) -> list[Diagnostic]:
    if port.dtype == value.dtype:
        return []
    names = {"io": "the pipeline's dtype (io)", "f32": "f32", "int": "int"}
    message = f"{edge} takes {names[port.dtype]}, {value.name} is {names[value.dtype]}"
    note = Note(f"{value.name} gets its dtype here", value.mark)
    help = None
    if value.producer is None:
        help = f"declare the input {value.name} with dtype: {port.dtype}"
    return [Diagnostic(codes.DTYPE, message, mark, (note,), help)]


def fill(pattern: str | None, variables: Mapping[str, str | None]) -> str | None:
    """The unit a pattern stands for, with its variables filled in; unsolved ones stay as written."""
    if pattern is None:
        return None
    whole = re.fullmatch(r"\{(\w+)\}", pattern)
    if whole and whole[1] in variables:
        return variables[whole[1]]
    return re.sub(r"\{(\w+)\}", lambda found: variables.get(found[1]) or found[0], pattern)


def match_unit(edge: str, mark, port: Port, value: Value, bindings: Bindings, stages: Mapping[str, Stage]) -> list[Diagnostic]:
    pattern = fill(port.unit, bindings.variables)
    if pattern == value.unit:
        return []
    free = re.findall(r"\{(\w+)\}", pattern or "")
    if free and pattern == f"{{{free[0]}}}":
        bindings.variables[free[0]] = value.unit
        bindings.variable_edges[free[0]] = (f"{edge} from {value.name}", mark)
        return []
    if free and value.unit is not None:
        shape = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(pattern))
        if found := re.fullmatch(shape, value.unit):
            bindings.variables.update(found.groupdict())
            bindings.variable_edges.update({name: (f"{edge} from {value.name}", mark) for name in found.groupdict()})
            return []
    message = f"{edge} takes {pattern or 'no unit'}, {value.name} is {value.unit or 'without a unit'}"
    notes = [Note(f"{value.name} gets its unit here", value.mark)]
    for name in re.findall(r"\{(\w+)\}", port.unit or ""):
        if name in bindings.variable_edges:
            text, first = bindings.variable_edges[name]
            notes.append(Note(f"{name} was first fixed to {bindings.variables[name]} by {text}", first))
    return [Diagnostic(codes.UNIT, message, mark, tuple(notes), conversion_help(value.unit, pattern, stages))]


def conversion_help(got: str | None, wanted: str | None, stages: Mapping[str, Stage]) -> str | None:
    """Name the stages that turn one unit into the other."""
    converters = [
        (stage.name, taken, given)
        for stage in stages.values()
        for taken, source in stage.contract.inputs.items()
        for given, result in stage.contract.outputs.items()
        if source.unit == got and result.unit == wanted and got and wanted
        and all(other == taken or port.optional for other, port in stage.contract.inputs.items())
    ]
    if not converters:
        return None
    name, taken, given = converters[0]
    return f"{name} converts {got} ({taken}) to {wanted} ({given}): put it in between"


def rename_axis(law: _laws.Law, axes: Mapping[str, Term]) -> _laws.Law:
    if law.axis is None or law.axis not in axes:
        return law
    renamed = str(axes[law.axis])
    return replace(law, axis=renamed, text=re.sub(rf"\b{law.axis}\b", renamed, law.text))


def match_law(edge: str, mark, port: Port, value: Value, bindings: Bindings) -> list[Diagnostic]:
    if port.where is None:
        return []
    needed = rename_axis(_laws.parse(port.where), bindings.axes)
    if any(law.implies(needed) for law in value.laws):
        return []
    have = ", ".join(law.text for law in value.laws) or "nothing"
    message = f"{edge} needs {needed.text}; {value.name} promises {have}"
    note = Note(f"{value.name} makes its promise here", value.mark)
    help = f'add where: "{needed.text}" to the input {value.name}' if value.producer is None else None
    return [Diagnostic(codes.LAW, message, mark, (note,), help)]


def presence_variables(stage: Stage, bound: Mapping[str, Value | None]) -> dict[str, str | None]:
    return {
        name: present if bound.get(port) is not None else absent
        for name, (port, present, absent) in stage.contract.presence.items()
    }


def match_stage(spec: StageSpec, stage: Stage, bound: Mapping[str, Value | None], stages) -> tuple[Bindings, list[Diagnostic]]:
    """Unify the edges of one stage entry; bound maps each port to its value, or None where absent."""
    bindings = Bindings(variables=presence_variables(stage, bound))
    for name, (port, _, _) in stage.contract.presence.items():
        state = "bound" if bound.get(port) is not None else "absent"
        bindings.variable_edges[name] = (f"{spec.id}.{port} being {state}", spec.mark)
    marks = {edge.port: edge.source_mark for edge in spec.edges}
    found = []
    for name, port in stage.contract.inputs.items():
        value = bound.get(name)
        if value is None:
            continue
        edge, mark = f"{spec.id}.{name}", marks.get(name)
        problems = match_axes(edge, mark, port, value, bindings)
        problems += match_dtype(edge, mark, port, value)
        problems += match_unit(edge, mark, port, value, bindings, stages)
        found += problems or match_law(edge, mark, port, value, bindings)
    return bindings, found


def output_value(spec: StageSpec, stage: Stage, name: str, bindings: Bindings, sizes: Mapping) -> tuple[Value, list[Diagnostic]]:
    """The value that leaves at one output port."""
    port, found, terms = stage.contract.outputs[name], [], []
    for axis in port.axes:
        term = int(axis) if axis.isdigit() else bindings.axes.get(axis, axis if axis in GLOBAL_AXES else None)
        if term is None:
            message = f"no edge of {spec.id} fixes the axis {axis} of its output {name} [{port.shape}]"
            found.append(Diagnostic(codes.AXIS_SIZE, message, spec.mark))
        terms.append(axis if term is None else term)
    unit = fill(port.unit, bindings.variables)
    laws = (rename_axis(_laws.parse(port.where), bindings.axes),) if port.where else ()
    value = Value(f"{spec.id}.{name}", tuple(terms), port.dtype, unit, laws, spec.id, name, spec.mark)
    return value, found
