"""Inputs whose declaration alone keeps stages away: a log decay or an initial state that does not say what it is."""

from ...stages import _laws
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from ..expression import Name
from ..loading.spec import InputSpec
from .algebra import algebra, exponent
from .compose import NotComposed


def declaration_errors(found: NotComposed) -> list[Diagnostic]:
    """One for each input that the recurrence uses as a unit which its declaration does not give."""
    case, errors = found.case, []
    for fact in algebra(case):
        node, log = exponent(fact) if fact.decay is not None else (None, False)
        if isinstance(node, Name) and node.id in case.spec.inputs and not log:
            entry = case.spec.inputs[node.id]
            unit = "log_decay/ln/token" if "T" in entry.shape else "log_decay/ln/slope"
            errors += wrong(entry, unit, "<= 0", f"{fact.state} decays by exp({node.id})")
        initial = case.readings.original.states[fact.state].input
        if initial in case.spec.inputs:
            errors += wrong(
                case.spec.inputs[initial], "state/sequence_start", None, f"{fact.state} starts from {initial}"
            )
    return errors


def wrong(entry: InputSpec, unit: str, law: str | None, use: str) -> list[Diagnostic]:
    laws = [_laws.parse(written.value) for written in entry.where]
    kept = law is None or any(each.implies(_laws.parse(law)) for each in laws)
    if (entry.unit, entry.dtype) == (unit, "f32") and kept:
        return []
    words = f"dtype: f32, unit: {unit}" + (f', where: "{law}"' if law else "")
    message = f"{use}, and the input {entry.name} is not declared as that: no stage takes it so"
    help = f"declare it with {words}"
    return [Diagnostic(codes.NO_STAGES, message, entry.mark, help=help)]
