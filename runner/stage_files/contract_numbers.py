"""Whether the numbers of a stage's contract can be computed: requires, flops, defaults of params, shapes of scratch."""

import math
from collections.abc import Callable, Collection, Mapping
from types import ModuleType

from ...stages._contract import Contract, Launcher, Port
from ..diagnostics.codes import EXPRESSION, STAGE_CONTRACT
from ..diagnostics.errors import Diagnostic, quoted
from ..expression import ExpressionError, help_for, is_condition, number_problems, parse_expression
from .signature_checks import parameters
from .stage_source import StageSource, Text


def number_errors(name: str, contract: Contract, module: ModuleType, source: StageSource) -> list[Diagnostic]:
    axes = axis_names(contract, module.reference)
    errors = list_errors(name, contract, source)
    if not errors:
        for text, where in zip(contract.requires, source.contract_texts("requires", contract.requires)):
            errors += text_errors(f"{name}: requires", text, {*axes, *contract.params}, where, condition=True)
    for text, where in zip([contract.flops], source.contract_texts("flops", [contract.flops])):
        errors += text_errors(f"{name}: flops", text, axes, where, condition=False)
    for param, default in contract.params.items():
        finite = isinstance(default, int | float) and not isinstance(default, bool) and math.isfinite(default)
        if default is not None and not finite:
            message = f"{name}: the default of {param} is {quoted(default)}, and a number or None belongs here"
            help = f"with None, a pipeline binds it by an expression of its own: with: {{{param}: K ** -0.5}}"
            errors.append(Diagnostic(STAGE_CONTRACT, message, source.contract_key("params", param), help=help))
    return errors + [error for each in ("LAUNCHERS", "VJP_LAUNCHERS") for error in scratch_errors(each, module, source)]


def axis_names(contract: Contract, reference: Callable) -> set[str]:
    """Axes that have a number wherever the stage stands: of its ports, and those that the reference takes by name."""
    ports = (*contract.inputs.values(), *contract.outputs.values())
    named = {axis for port in ports for axis in port.axes if not axis.isdigit()}
    return named | (set(parameters(reference)[1]) - set(contract.params))


def list_errors(name: str, contract: Contract, source: StageSource) -> list[Diagnostic]:
    """A text is a sequence too, of its letters."""
    if isinstance(contract.requires, tuple | list):
        return []
    message = f"{name}: requires is {quoted(contract.requires)}, and a tuple of texts belongs here"
    mark = source.contract_texts("requires", [contract.requires])[0].mark
    return [Diagnostic(STAGE_CONTRACT, message, mark, help='requires=("HV % H == 0",)')]


def text_errors(what: str, text: object, axes: Collection[str], where: Text, condition: bool) -> list[Diagnostic]:
    if not isinstance(text, str):
        return [Diagnostic(STAGE_CONTRACT, f"{what} is {quoted(text)}, and a text belongs here", where.mark)]
    try:
        tree = parse_expression(text)
    except ExpressionError as error:
        return [Diagnostic(error.code or EXPRESSION, f"{what}: {error.message}", where.part(error), help=error.help)]
    known = f"the axes of the stage are {', '.join(sorted(axes))}"
    found = [
        Diagnostic(each.code or EXPRESSION, f"{what}: {each.message}", where.part(each), help=help_for(each, known))
        for each in number_problems(tree, axes)
    ]
    if not found and is_condition(tree) != condition:
        is_now, wanted = ("a number", "a comparison") if condition else ("a comparison", "a number")
        found.append(Diagnostic(EXPRESSION, f"{what} is {is_now}, and {wanted} belongs here", where.mark))
    return found


def scratch_errors(section: str, module: ModuleType, source: StageSource) -> list[Diagnostic]:
    """Scratch is named ports; whether their axes have numbers depends on a configuration, and is seen in a plan."""
    mark = source.assignment(section)
    errors = []
    for launcher in getattr(module, section, ()):
        if not isinstance(launcher, Launcher):
            continue
        ports = launcher.scratch if isinstance(launcher.scratch, Mapping) else {"scratch": launcher.scratch}
        for name, port in ports.items():
            if not isinstance(port, Port):
                message = f"{section}: scratch {name} of {launcher.name} is no Port"
                errors.append(Diagnostic(STAGE_CONTRACT, message, mark, help='scratch={"M": Port("B T HV", F32)}'))
    return errors
