"""Whether a stage file's contract is well formed: names, shapes, dtypes, units, laws."""

import re
from collections.abc import Iterable, Mapping
from itertools import product
from types import ModuleType

from ...stages import _laws
from ...stages._contract import F32, INT, IO, Q8, Contract, Port
from ...stages._units import UNITS
from ..diagnostics.codes import AXIS_SIZE, BAD_NAME, DTYPE_NAME, LAW_TEXT, SHAPE_TEXT, STAGE_CONTRACT, UNIT_NAME
from ..diagnostics.errors import Diagnostic, quoted
from ..diagnostics.hints import nearest
from .contract_numbers import number_errors
from .law_place import misplaced
from .signature_checks import function_errors
from .stage_source import StageSource

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
VARIABLE = re.compile(r"\{(\w+)\}")
GLOBAL_AXES = ("C", "NT", "N", "T", "B", "TOP")
"""Axes that mean the pipeline's own where no edge of a stage binds them."""


def stage_errors(name: str, module: ModuleType, source: StageSource) -> list[Diagnostic]:
    """Everything that is wrong with a stage file that could be imported."""
    contract = getattr(module, "CONTRACT", None)
    if not NAME.fullmatch(name):
        return [Diagnostic(BAD_NAME, f"{quoted(name)} is no name for a stage", source.line(1), help="rename the file")]
    if not isinstance(contract, Contract):
        message = f"stage {name} has no CONTRACT" if contract is None else f"CONTRACT of stage {name} is no Contract"
        help = "CONTRACT = Contract(inputs={...}, outputs={...}); a helper's file name begins with _"
        return [Diagnostic(STAGE_CONTRACT, message, source.assignment("CONTRACT"), help=help)]
    errors = contract_errors(name, contract, source) or function_errors(name, contract, module, source)
    return errors or number_errors(name, contract, module, source)


def contract_errors(name: str, contract: Contract, source: StageSource) -> list[Diagnostic]:
    errors = kind_errors(name, contract, source)
    if errors:
        return errors
    errors = name_errors(name, contract, source)
    for section, ports in (("inputs", contract.inputs), ("outputs", contract.outputs)):
        for port_name, port in ports.items():
            where = source.contract_key(section, port_name)
            for check in (shape_error, dtype_error, law_error, unit_error, axes_error):
                if error := check(f"{name}.{port_name}", port, contract):
                    code, message, help = error
                    errors.append(Diagnostic(code, message, where, help=help))
    return errors + presence_errors(name, contract, source) + mutation_errors(name, contract, source)


def kind_errors(name: str, contract: Contract, source: StageSource) -> list[Diagnostic]:
    """Contract fields are mappings, and those of ports hold ports."""
    errors = []
    for section in ("inputs", "outputs", "params", "presence"):
        mapping = getattr(contract, section)
        if not isinstance(mapping, Mapping):
            message = f"{name}: {section} of the contract is no mapping"
            errors.append(Diagnostic(STAGE_CONTRACT, message, source.assignment("CONTRACT")))
            continue
        for key, value in mapping.items():
            if section in ("inputs", "outputs") and not isinstance(value, Port):
                mark = source.contract_key(section, key)
                errors.append(Diagnostic(STAGE_CONTRACT, f"{name}.{key} is no Port", mark, help='Port("B T H K", ...)'))
    return errors


def name_errors(name: str, contract: Contract, source: StageSource) -> list[Diagnostic]:
    """Ports and params are names, and each stands for one thing."""
    errors, seen = [], {}
    if not contract.outputs:
        errors.append(Diagnostic(STAGE_CONTRACT, f"stage {name} has no outputs", source.assignment("CONTRACT")))
    for section in ("inputs", "outputs", "params"):
        for each in getattr(contract, section):
            mark = source.contract_key(section, each)
            if not NAME.fullmatch(str(each)):
                errors.append(Diagnostic(BAD_NAME, f"{name}: {quoted(each)} is no name", mark))
            if each in seen:
                message = f"{name}: {each} stands in {seen[each]} and in {section}"
                errors.append(Diagnostic(STAGE_CONTRACT, message, mark))
            seen.setdefault(each, section)
    return errors


def mutation_errors(name: str, contract: Contract, source: StageSource) -> list[Diagnostic]:
    """An output is written over an input of its own shape, dtype and unit, and no two over the same."""
    errors, taken = [], set()
    for output, over in contract.mutated.items():
        port, target = contract.outputs[output], contract.inputs.get(over)
        same = target and (port.shape, port.dtype, port.unit) == (target.shape, target.dtype, target.unit)
        if not same or over in taken:
            why = "another output is too" if over in taken else "which is no input of the same shape, dtype and unit"
            message = f"{name}: {output} is written over {over}, {why}"
            errors.append(Diagnostic(STAGE_CONTRACT, message, source.contract_key("outputs", output)))
        taken.add(over)
    return errors


Finding = tuple[str, str, str | None]
"""code, message, help"""


def shape_error(port_name: str, port: Port, contract: Contract) -> Finding | None:
    axes = port.shape.split() if isinstance(port.shape, str) else []
    if axes and all(NAME.fullmatch(axis) or axis.isdecimal() for axis in axes):
        return None
    help = "axis names and sizes with spaces between, as B T HV 1"
    return SHAPE_TEXT, f"{port_name}: {quoted(port.shape)} is no shape", help


def axes_error(port_name: str, port: Port, contract: Contract) -> Finding | None:
    """Every axis of an output is one of some input, or has a meaning of its own everywhere."""
    known = {axis for each in contract.inputs.values() if isinstance(each.shape, str) for axis in each.axes}
    written = port.axes if isinstance(port.shape, str) else ()
    unknown = [axis for axis in written if axis not in {*known, *GLOBAL_AXES} and not axis.isdecimal()]
    if not unknown:
        return None
    help = f"the inputs have {', '.join(sorted(known))}"
    return AXIS_SIZE, f"{port_name} [{port.shape}]: no input has the axis {unknown[0]}, so it has no size", help


def dtype_error(port_name: str, port: Port, contract: Contract) -> Finding | None:
    if port.dtype in (IO, F32, INT, Q8):
        return None
    return DTYPE_NAME, f"{port_name}: unknown dtype {quoted(port.dtype)}", f"one of {IO}, {F32}, {INT}, {Q8}"


def law_error(port_name: str, port: Port, contract: Contract) -> Finding | None:
    if port.where is None:
        return None
    law = _laws.parse(port.where)
    if law is None:
        return LAW_TEXT, f"{port_name}: unknown value law {quoted(port.where)}", "one of " + ", ".join(_laws.FORMS)
    problem = misplaced(law, port.axes, port.dtype) if isinstance(port.shape, str) else None
    return (LAW_TEXT, f"{port_name}: {problem}", None) if problem else None


def unit_error(port_name: str, port: Port, contract: Contract) -> Finding | None:
    """Every unit that the port can come to have is in the list."""
    if port.unit is None:
        return None
    for unit in possible_units(port.unit, contract):
        if unit not in UNITS:
            near = nearest(unit, UNITS)
            help = f"did you mean {near}?" if near else "the list is UNITS in stages/_units.py"
            return UNIT_NAME, f"{port_name}: unknown unit {quoted(unit)}", help
    return None


def possible_units(unit: str, contract: Contract) -> Iterable[str]:
    """The unit with each presence variable replaced by both its values. A free variable stands for any listed unit."""
    variables = sorted(set(VARIABLE.findall(unit)))
    known = [each for each in variables if each in contract.presence]
    for values in product(*(contract.presence[each][1:] for each in known)):
        filled = unit
        for variable, value in zip(known, values, strict=True):
            filled = filled.replace("{" + variable + "}", value)
        pattern = re.compile(".+".join(re.escape(part) for part in VARIABLE.split(filled)[::2]))
        yield next((each for each in UNITS if pattern.fullmatch(each)), filled)


def presence_errors(name: str, contract: Contract, source: StageSource) -> list[Diagnostic]:
    """A presence variable hangs on an optional input and stands in some port's unit."""
    ports = (*contract.inputs.values(), *contract.outputs.values())
    used = {each for port in ports for each in VARIABLE.findall(port.unit or "")}
    errors = []
    for variable, (port_name, *_) in contract.presence.items():
        mark = source.contract_key("presence", variable)
        port = contract.inputs.get(port_name)
        if port is None or not port.optional:
            message = f"{name}: presence variable {variable} hangs on {port_name}, which is no optional input"
            errors.append(Diagnostic(STAGE_CONTRACT, message, mark))
        if variable not in used:
            errors.append(Diagnostic(STAGE_CONTRACT, f"{name}: no unit holds {{{variable}}}", mark))
    return errors
