"""The types of one stage's edges: axes, layout, dtype, unit and value laws, solved or refused.

A stage's axis names are its own; an edge binds them to the pipeline's. The first edge (in the contract's order)
that names an axis binds it; a later edge that disagrees is an error that names both. ``C``, ``NT``, ``N`` and
``T`` that no edge binds mean the pipeline's own.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...stages import _laws
from ...stages._contract import Port
from ...stages._units import UNITS
from ..diagnostics import codes
from ..diagnostics.errors import Convert, Diagnostic, Note, Replace
from ..loading.spec import StageSpec
from ..loading.spec_text import scalar
from ..stage_files.stage_checks import GLOBAL_AXES
from ..stage_files.stage_library import Stage
from .conversions import Conversion, conversions, in_place
from .graph import Origin, Term, Value


@dataclass
class Bindings:
    """What the edges of one stage have fixed so far; each with the edge that did it."""

    axes: dict[str, Term] = field(default_factory=dict)
    axis_edges: dict[str, Origin] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    variable_edges: dict[str, Origin] = field(default_factory=dict)


def written(terms) -> str:
    return " ".join(str(term) for term in terms)


def match_axes(edge: str, mark, port: Port, value: Value, bindings: Bindings) -> list[Diagnostic]:
    """Bind the port's axes to the value's, or say where they differ."""
    here = Note(f"{value.name} gets its shape here", value.mark_of("shape"))
    if len(port.axes) != len(value.axes):
        known = written(bindings.axes.get(axis, axis) for axis in port.axes)
        label = f"expected {len(port.axes)} axes [{known}], got {len(value.axes)} [{written(value.axes)}]"
        return [Diagnostic(codes.SHAPE, f"shape mismatch at {edge}", mark, (here,), label=label)]
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
                bindings.axis_edges[axis] = origin(edge, mark, value)
        return []
    known = [trial.get(axis, axis) for axis in port.axes]
    swapped = sorted(map(str, known)) == sorted(map(str, value.axes))
    first = bindings.axis_edges
    notes = [
        Note(f"axis {axis} was first fixed to {wanted} by {first[axis].text}", first[axis].mark)
        for axis, wanted, _ in clashes
        if axis in first
    ]
    label = f"expected [{written(known)}], got [{written(value.axes)}]"
    if swapped:
        help = "the axes are the same, their order is not"
        return [Diagnostic(codes.LAYOUT, f"layout mismatch at {edge}", mark, (*notes, here), help, label)]
    return [Diagnostic(codes.SHAPE, f"shape mismatch at {edge}", mark, (*notes, here), label=label)]


def origin(edge: str, mark, value: Value) -> Origin:
    return Origin(f"{edge} from {value.name}", mark, edge.partition(".")[2], value.name)


def match_dtype(edge: str, mark, port: Port, value: Value) -> list[Diagnostic]:
    if port.dtype == value.dtype:
        return []
    names = {"io": "the pipeline's dtype (io)", "f32": "f32", "int": "int", "q8": "q8"}
    label = f"expected {names[port.dtype]}, got {names[value.dtype]}"
    without = value.producer is None and value.dtype == "io" and not value.written.get("dtype")
    verb = "is declared without a dtype" if without else "gets its dtype"
    note = Note(f"{value.name} {verb} here", value.mark_of("dtype"))
    help = None
    if value.producer is None:
        help = f"declare the input {value.name} with dtype: {port.dtype}"
    return [Diagnostic(codes.DTYPE, f"dtype mismatch at {edge}", mark, (note,), help, label)]


def fill(pattern: str | None, variables: Mapping[str, str | None]) -> str | None:
    """The unit a pattern stands for, with its variables filled in; unsolved ones stay as written."""
    if pattern is None:
        return None
    whole = re.fullmatch(r"\{(\w+)\}", pattern)
    if whole and whole[1] in variables:
        return variables[whole[1]]
    return re.sub(r"\{(\w+)\}", lambda found: variables.get(found[1]) or found[0], pattern)


def match_unit(
    edge: str,
    mark,
    port: Port,
    value: Value,
    bindings: Bindings,
    entries: Mapping[str, StageSpec],
    stages: Mapping[str, Stage],
) -> list[Diagnostic]:
    pattern = fill(port.unit, bindings.variables)
    if pattern == value.unit:
        return []
    free = re.findall(r"\{(\w+)\}", pattern or "")
    if free and pattern == f"{{{free[0]}}}":
        bindings.variables[free[0]] = value.unit
        bindings.variable_edges[free[0]] = origin(edge, mark, value)
        return []
    if free and value.unit is not None:
        shape = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(pattern))
        if found := re.fullmatch(shape, value.unit):
            bindings.variables.update(found.groupdict())
            bindings.variable_edges.update(dict.fromkeys(found.groupdict(), origin(edge, mark, value)))
            return []
    wanted = re.sub(r"\{\w+\}", "...", pattern) if pattern else "no unit"
    label = f"expected {wanted}, got {value.unit or 'no unit'}"
    notes = [Note(f"{unit}: {UNITS[unit]}") for unit in (pattern, value.unit) if unit in UNITS]
    verb = "gets its unit" if value.unit else "is declared without a unit"
    notes.append(Note(f"{value.name} {verb} here", value.mark_of("unit")))
    for name in re.findall(r"\{(\w+)\}", port.unit or ""):
        if name in bindings.variable_edges:
            first = bindings.variable_edges[name]
            notes.append(Note(f"{name} was first fixed to {bindings.variables[name]} by {first.text}", first.mark))
    help, repair = conversion(mark, value, conversions(value, port, pattern, stages), entries)
    help = help or unit_help(value, pattern)
    return [Diagnostic(codes.UNIT, f"unit mismatch at {edge}", mark, tuple(notes), help, label, repair=repair)]


def unit_help(value: Value, wanted: str | None) -> str | None:
    """For an input that says nothing of its numbers: what to say, if they mean that."""
    if value.producer is not None or value.unit is not None or wanted not in UNITS:
        return None
    return f"declare the input {value.name} with unit: {wanted}, if its numbers are that"


def conversion(
    mark, value: Value, found: list[Conversion], entries: Mapping[str, StageSpec]
) -> tuple[str | None, Replace | Convert | None]:
    """Help that names a stage that converts the unit, or the entry of the file that does so already; and the repair,
    where that is the only one."""
    if not found:
        return None, None
    source = written_source(value, entries)
    if there := in_place(found, source, entries):
        id, best = there
        right = f"{id}.{best.gives}"
        return f"{id} ({best.stage.name}) converts it: read {right}", mark and Replace(mark, source, right)
    best = found[0]
    name, edges = best.stage.name, f"{{{best.takes}: {scalar(source, flow=True)}}}"
    help = f"{name} converts it: add a stage {{use: {name}, in: {edges}}} and read its {best.gives}"
    only = mark is not None and len(found) == 1
    return help, Convert(mark, source, name, best.takes, best.gives) if only else None


def written_source(value: Value, entries: Mapping[str, StageSpec]) -> str:
    """What a file says to read a value: its name, or the expression that gives it."""
    producer = entries.get(value.producer)
    return producer.formula.text if producer and producer.formula else value.name


def rename_axis(law: _laws.Law, axes: Mapping[str, Term]) -> _laws.Law:
    if law.axis is None:
        return law
    renamed = re.sub(r"\w+", lambda axis: str(axes.get(axis[0], axis[0])), law.axis)
    return replace(law, axis=renamed, text=law.text.replace(f"({law.axis}", f"({renamed}"))


def match_law(edge: str, mark, port: Port, value: Value, bindings: Bindings) -> list[Diagnostic]:
    if port.where is None:
        return []
    needed = rename_axis(_laws.parse(port.where), bindings.axes)
    if any(law.implies(needed) for law in value.laws):
        return []
    have = ", ".join(law.text for law in value.laws)
    label = f"expected {needed.text}, got " + (have or "no promise")
    note = Note(
        f"{value.name} {'makes its promise' if have else 'is declared without a law'} here", value.mark_of("where")
    )
    help = None
    if value.producer is None:
        help = f'declare the input {value.name} with where: "{needed.text}", if its values keep to it'
    notes = (Note(f"{edge} needs a promise: {needed.words}"), note)
    return [Diagnostic(codes.LAW, f"value law not implied at {edge}", mark, notes, help, label)]


def odd_one_out(edges: Mapping[str, tuple[Port, Value]]) -> str | None:
    """The edge without which the axes of all others go together: it is wrong, whichever edge came first. Of several,
    the one with the fewest axes under the names that its port gives them; None where all agree or no one is odd."""
    if axes_agree(edges.values()):
        return None
    odd = [name for name in edges if axes_agree(pair for other, pair in edges.items() if other != name)]
    return min(reversed(odd), key=lambda name: named_alike(*edges[name]), default=None)


def axes_agree(pairs: Iterable[tuple[Port, Value]]) -> bool:
    terms: dict[str, Term] = {}
    for port, value in pairs:
        if len(port.axes) != len(value.axes):
            return False
        for axis, term in zip(port.axes, value.axes):
            if term != (int(axis) if axis.isdigit() else terms.setdefault(axis, term)):
                return False
    return True


def named_alike(port: Port, value: Value) -> int:
    return sum(axis == str(term) for axis, term in zip(port.axes, value.axes))


def match_stage(
    spec: StageSpec,
    stage: Stage,
    bound: Mapping[str, Value | None],
    unknown: Collection[str],
    entries: Mapping[str, StageSpec],
    stages: Mapping[str, Stage],
) -> tuple[Bindings, list[Diagnostic]]:
    """Unify the edges of one stage entry; bound maps each port to its value, or None where absent.

    unknown: ports that are bound to a value of which nothing is known, because an error stands before it.
    """
    bindings = Bindings()
    for name, (port, present, absent) in stage.contract.presence.items():
        there = bound.get(port) is not None or port in unknown
        bindings.variables[name] = present if there else absent
        words = f"{spec.id}.{port} being {'bound' if there else 'absent'}"
        bindings.variable_edges[name] = Origin(words, spec.mark, port)
    marks = {edge.port: edge.source_mark for edge in spec.edges}
    edges = {name: (port, bound[name]) for name, port in stage.contract.inputs.items() if bound.get(name) is not None}
    found = []
    for name in sorted(edges, key=lambda name: name == odd_one_out(edges)):
        port, value = edges[name]
        edge, mark = f"{spec.id}.{name}", marks.get(name)
        shape = match_axes(edge, mark, port, value, bindings)
        units = match_unit(edge, mark, port, value, bindings, entries, stages)
        # a value of another shape is another value: a unit would not mend it
        units = [replace(each, help=None) for each in units] if shape else units
        problems = [*shape, *match_dtype(edge, mark, port, value), *units]
        found += problems or match_law(edge, mark, port, value, bindings)
    return bindings, found


def output_value(
    spec: StageSpec, stage: Stage, name: str, bindings: Bindings, sizes: Mapping
) -> tuple[Value, list[Diagnostic]]:
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
