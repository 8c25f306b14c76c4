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
        if isinstance(node, Name) and node.id in case.spec.inputs and log:
            errors += no_factor(case.spec.inputs[node.id], f"{fact.state} decays by {node.id}")
        initial = case.readings.original.states[fact.state].input
        if initial in case.spec.inputs:
            errors += wrong(
                case.spec.inputs[initial], "state/sequence_start", None, f"{fact.state} starts from {initial}"
            )
    return errors


def no_factor(entry: InputSpec, use: str) -> list[Diagnostic]:
    """A decay that is an input itself has a logarithm of 0 or below only where it is a factor of at most 1."""
    laws = [_laws.parse(written.value) for written in entry.where]
    if all(any(each.implies(_laws.parse(bound)) for each in laws) for bound in (">= 0", "<= 1")):
        return []
    message = f"{use}, and the input {entry.name} is not declared as a factor of 0 to 1: no stage takes it so"
    return [Diagnostic(codes.NO_STAGES, message, entry.mark, help="declare it with where: 0..1")]


def wrong(entry: InputSpec, unit: str, law: str | None, use: str) -> list[Diagnostic]:
    laws = [_laws.parse(written.value) for written in entry.where]
    kept = law is None or any(each.implies(_laws.parse(law)) for each in laws)
    if (entry.unit, entry.dtype) == (unit, "f32") and kept:
        return []
    words = f"dtype: f32, unit: {unit}" + (f', where: "{law}"' if law else "")
    message = f"{use}, and the input {entry.name} is not declared as that: no stage takes it so"
    help = f"declare it with {words}"
    return [Diagnostic(codes.NO_STAGES, message, entry.mark, help=help)]
