"""Definitions that ask for nothing: inputs that change no output, and outputs that are an input."""

from collections.abc import Iterator

from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from .matching import Truths, same
from .tiny_case import TinyCase, evaluated, tiny_case


def needless(case: TinyCase) -> list[Diagnostic]:
    """One for each such input, or for each such output where every input has its effect."""
    inputs = [
        Diagnostic(
            codes.UNUSED_INPUT,
            f"no output depends on the input {name}, though a line reads it",
            case.spec.inputs[name].mark,
            help="remove it, and what the lines make of it",
        )
        for name in inputs_without_effect(case)
    ]
    return inputs or list(outputs_as_they_came(case))


def inputs_without_effect(case: TinyCase) -> list[str]:
    """Inputs with which, other numbers in their place, the outputs of the tiny case stay what they are."""
    others = tiny_case(case.spec, case.readings, list(case.outputs), seed=1).inputs
    found = []
    for name in case.inputs:
        inputs = {**case.inputs, name: others[name]}
        outputs = evaluated(case.spec, case.readings, list(case.outputs), inputs, case.sizes, case.params)
        if all(x is None or same(outputs[each], x) for each, x in case.outputs.items()):
            found.append(name)
    return found


def outputs_as_they_came(case: TinyCase) -> Iterator[Diagnostic]:
    truths, definition = Truths(case), case.readings.original
    for name, value in case.values.items():
        for output in truths.outputs_of(value, case.inputs[name]) if case.inputs[name] is not None else ():
            line = definition.finals.get(output) or next(x for x in definition.step if x.target.id == output)
            message = f"the output {output} is the input {name} as it came: there is nothing for a stage to do"
            yield Diagnostic(codes.NO_STAGES, message, line.line.where, help="a definition gives what it computes")
