"""Whether the numbers that a file writes as expressions can be computed: params, with, constraints."""

from collections.abc import Collection

from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from ..diagnostics.marks import Mark
from ..expression import ExpressionError, number_problems, parse_expression
from .spec import PipelineSpec, Written


def expression_errors(spec: PipelineSpec) -> list[Diagnostic]:
    """Params may use the axes and the params before them, with: the axes and every param, constraints the axes."""
    axes, found = axis_names(spec), []
    for position, (name, written) in enumerate(spec.params.items()):
        found += problems(f"the param {name}", written, {*axes, *list(spec.params)[:position]})
    for entry in spec.stages.values():
        for name, written in entry.params.items():
            found += problems(f"{entry.id}.{name}", written, {*axes, *spec.params})
    for written in spec.constraints:
        found += problems("the constraint", written, axes)
    return found


def axis_names(spec: PipelineSpec) -> set[str]:
    """Axes that have a number at every call: of the inputs, fixed ones, and those that follow from them."""
    names = {axis for entry in spec.inputs.values() for axis in entry.shape if not axis.isdigit()} | set(spec.axes)
    names |= {"N"} if "B" in names else set()
    return names | ({"NT"} if {"T", "C", "N"} <= names else set())


def problems(what: str, written: Written, names: Collection[str]) -> list[Diagnostic]:
    if not isinstance(written.value, str):
        return []
    try:
        found = number_problems(parse_expression(written.value), names)
    except ExpressionError as error:
        return [Diagnostic(codes.EXPRESSION, f"{what}: {error.message}", part(written, error), help=error.help)]
    known = f"the names here are {', '.join(sorted(names))}" if names else None
    return [
        Diagnostic(codes.UNKNOWN_NAME, f"{what}: {error.message}", part(written, error), help=error.help or known)
        for error in found
    ]


def part(written: Written, error: ExpressionError) -> Mark:
    return written.mark.within(error.start, error.end)
