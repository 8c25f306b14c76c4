"""An expression in an edge as a node: its operands' axes, dtypes, units and laws checked, its stage made."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...stages import _laws
from ...stages._contract import F32, HELD, IO, Port
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic, Note
from ..loading.spec import EdgeSpec, StageSpec
from ..maps.layout import in_order
from ..maps.map_stage import map_stage
from ..maps.ranges import Range, of_laws, range_of
from ..maps.units import FREE, UnitDropped, unit_of
from ..stage_files.stage_library import Stage
from .graph import Value


@dataclass(frozen=True)
class MapTypes:
    """The type of an expression's result."""

    dtype: str
    unit: str | None
    law: _laws.Law | None


def map_node_stage(
    entry: StageSpec, operands: Mapping[str, Value], reading: Port | None
) -> tuple[Stage | None, list[Diagnostic]]:
    """The stage of an expression, or what is wrong with it. operands: by port. reading: the port that reads it."""
    found = axes_errors(entry, operands) or dtype_errors(entry, operands)
    if found:
        return None, found
    types, found = result_types(entry, operands, reading)
    if found:
        return None, found
    formula = entry.formula
    ports = tuple((name, operand_port(value)) for name, value in operands.items())
    y = Port("", types.dtype, types.unit, types.law.text if types.law else None)
    text = " ".join(formula.text.split())
    return map_stage(text, formula.term, ports, tuple(formula.scalars), y), []


def operand_port(value: Value) -> Port:
    return Port(" ".join(map(str, value.axes)), value.dtype, value.unit)


def edge_of(entry: StageSpec, port: str) -> EdgeSpec:
    return next(edge for edge in entry.edges if edge.port == port)


def shape(value: Value) -> str:
    return f"{value.name} [{' '.join(map(str, value.axes))}]"


def declared(*values: Value) -> tuple[Note, ...]:
    return tuple(Note(f"{value.name} gets its shape here", value.mark_of("shape")) for value in values)


def axes_errors(entry: StageSpec, operands: Mapping[str, Value]) -> list[Diagnostic]:
    """Operands meet by the names of their axes, in one order; one of them has all."""
    axes = {name: tuple(map(str, value.axes)) for name, value in operands.items()}
    whole = max(axes, key=lambda name: len(axes[name]))
    for name, mine in axes.items():
        edge, first, second = edge_of(entry, name), operands[name], operands[whole]
        if len(set(mine)) < len(mine):
            message = f"{shape(first)} has an axis twice, and operands meet by the names of their axes"
            return [Diagnostic(codes.SHAPE, message, edge.source_mark, declared(first))]
        if missing := [axis for axis in mine if axis not in axes[whole]]:
            message = f"{shape(first)} and {shape(second)} do not broadcast: neither has the axes of both"
            help = heads_help(set(mine) ^ set(axes[whole])) or f"{second.name} has no axis {missing[0]}"
            return [Diagnostic(codes.SHAPE, message, edge.source_mark, declared(first, second), help)]
        if not in_order(mine, axes[whole]):
            message = f"{shape(first)} and {shape(second)} do not broadcast"
            help = "the axes are the same, their order is not"
            return [Diagnostic(codes.LAYOUT, message, edge.source_mark, declared(first, second), help)]
    return []


def heads_help(differ: set[str]) -> str | None:
    if not {"H", "HV"} <= differ:
        return None
    return "H key heads and HV value heads are two axes: an expression repeats no head"


def dtype_errors(entry: StageSpec, operands: Mapping[str, Value]) -> list[Diagnostic]:
    return [
        Diagnostic(codes.DTYPE, f"{value.name} holds integers", edge_of(entry, name).source_mark,
                   help="an expression in an edge takes io and f32 operands")
        for name, value in operands.items()
        if value.dtype in HELD
    ]  # fmt: skip


def result_types(
    entry: StageSpec, operands: Mapping[str, Value], reading: Port | None
) -> tuple[MapTypes | None, list[Diagnostic]]:
    dtype = F32 if reading is not None and reading.dtype == F32 else IO
    ranges = {name: of_laws(value.laws) for name, value in operands.items()}
    units = {name: value.unit for name, value in operands.items()}
    result = range_of(entry.formula.term, ranges)
    try:
        unit = unit_of(entry.formula.term, units, ranges)
    except UnitDropped as error:
        return None, [dropped_error(entry, operands[error.operand], error.operand)]
    if unit is None and reading is not None and reading.unit in FREE:
        wanted = FREE[reading.unit]
        if wanted and not (result.law and result.law.implies(_laws.parse(wanted))):
            return None, [range_error(entry, operands, ranges, result, reading.unit, wanted)]
        unit = reading.unit
    return MapTypes(dtype, unit, result.law), []


def dropped_error(entry: StageSpec, value: Value, port: str) -> Diagnostic:
    notes = (Note(f"{value.name} gets its unit here", value.mark_of("unit")),)
    help = "kept are exp of a log decay per token, log of a decay, multiples that are proven positive, and sums"
    message = f"the expression drops the unit of {value.name}, {value.unit}"
    return Diagnostic(codes.UNIT, message, edge_of(entry, port).source_mark, notes, help)


def range_error(entry, operands, ranges: Mapping[str, Range], result: Range, unit: str, wanted: str) -> Diagnostic:
    """The port's unit asks for a range that the operands' laws do not give."""
    formula, have = entry.formula, f"{result.law.text}" if result.law else "no promise"
    notes = [Note(f"{formula.reader}.{formula.port} takes {unit}, every value of which is {wanted}")]
    for value in operands.values():
        laws = ", ".join(law.text for law in value.laws)
        verb = f"promises {laws}" if laws else "promises nothing"
        notes.append(Note(f"{value.name} {verb}", value.mark_of("where")))
    message = f"{formula.reader}.{formula.port}: the expression is not known to keep {wanted}"
    return Diagnostic(codes.LAW, message, entry.mark, tuple(notes), KEEPING[wanted], f"expected {wanted}, got {have}")


KEEPING = {
    "<= 0": "-exp(x), -softplus(x) and logsigmoid(x) are at most 0 whatever x is",
    "0..1": "sigmoid(x) and exp(-softplus(x)) lie in 0..1 whatever x is",
}
"""Law -> expressions that keep it."""
