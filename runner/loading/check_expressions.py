"""Whether the numbers that a file writes as expressions can be computed: params, with, constraints."""

from collections.abc import Collection

from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from ..diagnostics.marks import Mark
from ..expression import ExpressionError, Node, help_for, is_condition, number_problems, parse_expression
from .spec import PipelineSpec, Written


def expression_errors(spec: PipelineSpec) -> list[Diagnostic]:
    """Params may use the axes and the params before them, with: the axes and every param, constraints the axes."""
    axes, found = axis_names(spec), range_errors(spec)
    for position, (name, written) in enumerate(spec.params.items()):
        found += problems(f"the param {name}", written, {*axes, *list(spec.params)[:position]})
    for entry in spec.stages.values():
        for name, written in entry.params.items():
            found += problems(f"{entry.id}.{name}", written, {*axes, *spec.params})
    for written in spec.constraints:
        found += problems("the constraint", written, axes, condition=True)
    return found


def range_errors(spec: PipelineSpec) -> list[Diagnostic]:
    """Only the chunk length may follow the sequences, and only where no input has chunks."""
    found = []
    for name, written in spec.axes.items():
        chunked = [entry.name for entry in spec.inputs.values() if {"C", "NT"} & set(entry.shape)]
        if written.least is not None and (name != "C" or chunked):
            why = f"the input {chunked[0]} has chunks" if name == "C" else "only C follows the sequences"
            message = f"axes.{name} cannot be {written.text}: {why}"
            found.append(Diagnostic(codes.AXIS_SIZE, message, written.mark, help=f"write {name}: {written.value}"))
    return found


def axis_names(spec: PipelineSpec) -> set[str]:
    """Axes that have a number at every call: of the inputs, fixed ones, and those that follow from them."""
    names = {axis for entry in spec.inputs.values() for axis in entry.shape if not axis.isdigit()} | set(spec.axes)
    names |= {"N"} if "B" in names else set()
    return names | ({"NT"} if {"T", "C", "N"} <= names else set())


def problems(what: str, written: Written, names: Collection[str], condition: bool = False) -> list[Diagnostic]:
    """What is wrong with one expression. condition: whether it is to be true or false, or a number."""
    if not isinstance(written.value, str):
        return []
    try:
        tree = parse_expression(written.value)
    except ExpressionError as error:
        return [at_part(what, written, error, error.help)]
    known = f"the names here are {', '.join(sorted(names))}" if names else None
    found = [at_part(what, written, each, help_for(each, known)) for each in number_problems(tree, names)]
    return found or kind_errors(what, written, tree, condition)


def at_part(what: str, written: Written, error: ExpressionError, help: str | None) -> Diagnostic:
    return Diagnostic(error.code or codes.EXPRESSION, f"{what}: {error.message}", part(written, error), help=help)


def kind_errors(what: str, written: Written, tree: Node, condition: bool) -> list[Diagnostic]:
    if is_condition(tree) == condition:
        return []
    message, help = f"{what} is a comparison, and a number belongs here", None
    if condition:
        message, help = f"{what} is a number, and a comparison belongs here", "as HV % H == 0"
    return [Diagnostic(codes.EXPRESSION, message, written.mark, help=help)]


def part(written: Written, error: ExpressionError) -> Mark:
    return written.mark.within(error.start, error.end)
