"""Whether the functions of a stage file take the names of its contract."""

import inspect
from collections.abc import Callable
from types import ModuleType

from ...stages._contract import Contract, Launcher
from ..diagnostics.codes import STAGE_CONTRACT, STAGE_SIGNATURE
from ..diagnostics.errors import Diagnostic
from ..diagnostics.hints import nearest
from ..diagnostics.marks import Mark
from .stage_source import StageSource


def function_errors(name: str, contract: Contract, module: ModuleType, source: StageSource) -> list[Diagnostic]:
    """Whether reference, launchers, vjp and its launchers take the contract's names."""
    inputs, outputs = list(contract.inputs), list(contract.outputs)
    axes = {axis for port in (*contract.inputs.values(), *contract.outputs.values()) for axis in port.axes}
    free = {*axes, "C", *contract.params}
    reference = getattr(module, "reference", None)
    if not callable(reference):
        return [Diagnostic(STAGE_CONTRACT, f"stage {name} has no reference", source.line(1), help=REFERENCE_HELP)]
    errors = signature_errors(f"{name}: reference", reference, inputs, free, source)
    for launcher in launchers_of(module, "LAUNCHERS", source, errors):
        expected = [*inputs, *outputs, *launcher.scratch]
        errors += signature_errors(f"{name}: launch", launcher.launch, expected, free, source, ("seqs", "config"))
    vjp = getattr(module, "vjp", None)
    if vjp is None and getattr(module, "VJP_LAUNCHERS", ()):
        message = f"stage {name} has VJP_LAUNCHERS and no vjp"
        errors.append(Diagnostic(STAGE_CONTRACT, message, source.assignment("VJP_LAUNCHERS")))
    gradients = {f"d_{each}" for each in outputs} | set(inputs) | set(outputs)
    if vjp is not None:
        errors += subset_errors(f"{name}: vjp", vjp, gradients, free, source, ("needs",))
    for launcher in launchers_of(module, "VJP_LAUNCHERS", source, errors):
        known = gradients | {f"d_{each}" for each in inputs} | set(launcher.scratch)
        errors += subset_errors(f"{name}: vjp launch", launcher.launch, known, free, source, ("seqs", "config"))
    return errors


REFERENCE_HELP = 'def reference(<inputs in order>, *, <axes and params>): return {"<output>": ...}'


def launchers_of(module: ModuleType, name: str, source: StageSource, errors: list[Diagnostic]):
    """The launchers of a list; what is no Launcher goes to errors."""
    mark = source.assignment(name)
    launchers = getattr(module, name, [])
    for each in launchers if isinstance(launchers, list | tuple) else [launchers]:
        if isinstance(each, Launcher):
            yield each
        else:
            errors.append(Diagnostic(STAGE_CONTRACT, f"{name} holds something that is no Launcher", mark))


def signature_errors(
    what: str, function: Callable, expected: list[str], free: set[str], source, required=()
) -> list[Diagnostic]:
    """Positional parameters are exactly expected, keyword-only ones are free names or required ones."""
    positional, keywords, star = parameters(function)
    mark = source.function(name_of(function))
    if inspect.iscoroutinefunction(function):
        return [async_error(what, mark)]
    if star or positional != expected:
        message = f"{what} takes ({', '.join(positional + star)}), and the contract says ({', '.join(expected)})"
        return [Diagnostic(STAGE_SIGNATURE, message, mark, help=ORDER_HELP)]
    return keyword_errors(what, function, keywords, free, required, source)


def subset_errors(
    what: str, function: Callable, known: set[str], free: set[str], source, required=()
) -> list[Diagnostic]:
    """Positional parameters are among known, keyword-only ones are free names or required ones."""
    positional, keywords, star = parameters(function)
    if inspect.iscoroutinefunction(function):
        return [async_error(what, source.function(name_of(function)))]
    errors = keyword_errors(what, function, keywords, free, required, source)
    for name in positional + star:
        if name not in known:
            mark = source.argument(name_of(function), name)
            near = nearest(name, known)
            help = f"did you mean {near}?" if near else f"one of {', '.join(sorted(known))}"
            message = f"{what} takes {name}, which the contract does not have"
            errors.append(Diagnostic(STAGE_SIGNATURE, message, mark, help=help))
    return errors


ORDER_HELP = "inputs in the contract's order, then a launch's outputs and scratch; axes and params after *"


def keyword_errors(
    what: str, function: Callable, keywords: list[str], free: set[str], required, source
) -> list[Diagnostic]:
    errors = []
    for name in keywords:
        if name not in free and name not in required:
            near = nearest(name, {*free, *required})
            help = f"did you mean {near}?" if near else f"one of {', '.join(sorted({*free, *required}))}"
            message = f"{what} takes {name}, which is no axis and no param of the contract"
            errors.append(Diagnostic(STAGE_SIGNATURE, message, source.argument(name_of(function), name), help=help))
    for name in required:
        if name not in keywords:
            mark = source.function(name_of(function))
            errors.append(Diagnostic(STAGE_SIGNATURE, f"{what} does not take {name}", mark, help=f"add {name} after *"))
    return errors


def async_error(what: str, mark: Mark) -> Diagnostic:
    return Diagnostic(STAGE_SIGNATURE, f"{what} is async, and nothing awaits it", mark, help="write def")


def name_of(function: Callable) -> str:
    return getattr(function, "__name__", "")


def parameters(function: Callable) -> tuple[list[str], list[str], list[str]]:
    """Names of the positional parameters, of the keyword-only ones, and of *args and **kwargs."""
    try:
        kinds = {name: each.kind for name, each in inspect.signature(function).parameters.items()}
    except (TypeError, ValueError):
        return [], [], ["..."]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return (
        [name for name, kind in kinds.items() if kind in positional],
        [name for name, kind in kinds.items() if kind == keyword],
        [name for name, kind in kinds.items() if kind not in (*positional, keyword)],
    )
