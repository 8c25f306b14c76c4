"""The first tensor that failed, said as its author needs it: which file to look at, and what to try."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic, Note
from ..diagnostics.marks import Mark
from ..graphs.graph import Node
from ..planning.dtypes import port_dtype
from ..stage_files.stage_source import StageSource
from .budgets import ALONE, OFF, error_of, relative
from .result import Row
from .rounding import RHO
from .staged import Subject, stage_case, stage_outputs, staged_values


def failure(subject: Subject, rows: Sequence[Row]) -> Diagnostic | None:
    """The diagnostic of the first row that is not ok; None where all are."""
    bad = next((row for row in rows if not row.ok), None)
    if bad is None:
        return None
    if bad.id in subject.graph.nodes:
        node = subject.graph.nodes[bad.id]
        return breach_failure(node, bad) if bad.verdict.ok else stage_failure(subject, node, bad)
    if bad.id == "op" and (wrong := wrong_vjp(subject)):
        return vjp_failure(*wrong)
    return op_failure(subject, bad)


def breach_failure(node: Node, bad: Row) -> Diagnostic:
    message = f"stage {node.id} ({node.stage.name}), output {bad.value}, breaks its law: {bad.breach.law.words}"
    mark = StageSource(Path(node.stage.file)).contract_key("outputs", bad.value)
    notes = (Note(bad.breach.words), Note(f"{bad.backend} makes it, from inputs that keep their laws"), *entry_of(node))
    help = "correct the stage, or promise only what it keeps: later stages lean on the law"
    return Diagnostic(codes.VALUE_OUT_OF_LAW, message, mark, notes, help)


def stage_failure(subject: Subject, node: Node, bad: Row) -> Diagnostic:
    message = f"stage {node.id} ({node.stage.name}), output {bad.value}, is the first out of budget: {bad.why}"
    if wrong := wrong_input(subject, node, bad):
        mark = subject.graph.inputs[wrong[0]].mark
        return Diagnostic(codes.OUT_OF_BUDGET, message, mark, entry_of(node), f"correct the input: {wrong[1]}")
    if why := no_truth(subject, node, bad):
        mark = function_mark(node, "vjp" if has_vjp(node) else "reference")
        return Diagnostic(codes.OUT_OF_BUDGET, message, mark, entry_of(node), why)
    if has_vjp(node) and (off := vjp_error(subject, node, staged_values(subject, torch.float64))):
        return vjp_failure(node, *off)
    if bad.verdict.over == ALONE:
        wrong = f"stage {node.id} ({node.stage.name}), output {bad.value}, is wrong: {bad.why}"
        help = "needs says which gradients are wanted; none of them depends on which others are"
        return Diagnostic(codes.OUT_OF_BUDGET, wrong, function_mark(node, "vjp"), entry_of(node), help)
    launcher = next((each for each in node.stage.launchers if each.name == bad.backend), None)
    if launcher and bad.verdict.over != OFF:
        mark = function_mark(node, launcher.launch.__name__)
        help = "its reference stands; look at the kernel, or at a compiler that miscompiles it (`chunkwise doctor`)"
    else:
        mark = function_mark(node, "vjp" if has_vjp(node) else "reference")
        help = "in float32 it loses more than its operations do: look for a constant or cast in a narrower dtype"
    return Diagnostic(codes.OUT_OF_BUDGET, message, mark, entry_of(node), help)


def wrong_input(subject: Subject, node: Node, bad: Row) -> tuple[str, str] | None:
    """An input of the op that is not finite, and a place of it as text, where that is why a stage has no finite truth.
    -inf comes last: a gate may be that."""
    case = stage_case(subject, node, staged_values(subject, torch.float64))
    if all_finite(case.inputs.values()) or all_finite([case.truth[bad.value]]):
        return None
    given = {name: x.double() for name, x in subject.call.tensors.items() if x is not None}
    for wrong in (lambda x: x.isnan() | x.isposinf(), torch.isneginf):
        for name, x in given.items():
            for at in wrong(x).nonzero().tolist()[:1]:
                return name, f"{name}[{', '.join(map(str, at))}] = {x[tuple(at)].item()}"
    return None


def all_finite(tensors: Iterable[torch.Tensor | None]) -> bool:
    return all(bool(x.isfinite().all()) for x in tensors if x is not None)


def no_truth(subject: Subject, node: Node, bad: Row) -> str | None:
    """Why a stage's float64 reference cannot be held against anything; None where it can."""
    case = stage_case(subject, node, staged_values(subject, torch.float64))
    if all_finite(case.inputs.values()) and not all_finite([case.truth[bad.value]]):
        return "the float64 reference itself gives nan or inf here, from inputs that are all finite"
    if (most := past_the_dtype(subject, node, bad.value, case.truth[bad.value])) is not None:
        return (
            f"the float64 reference itself reaches {most}: the op grows without bound on these inputs; declare what "
            "they are (where: 0..1), and give the keys of a delta rule the length 1 (unit_norm(K), or the stage l2norm)"
        )
    once, again = (stage_outputs(subject, node, case.inputs, torch.float64)[bad.value] for _ in range(2))
    if not torch.equal(once.nan_to_num(), again.nan_to_num()):
        return "two calls of it on the same inputs differ: a stage's results depend on its inputs alone"
    return None


def past_the_dtype(subject: Subject, node: Node, port: str, truth: torch.Tensor) -> str | None:
    """The largest number of a result, where the result's dtype has none so large."""
    dtype = port_dtype(node.stage.contract.outputs[port].dtype, subject.call.io)
    if not dtype.is_floating_point or not truth.numel():
        return None
    most, holds = truth.abs().max().item(), torch.finfo(dtype).max
    return f"{most:.1e} here, past the {holds:.1e} of {str(dtype).removeprefix('torch.')}" if most > holds else None


def vjp_failure(node: Node, port: str, off: float, limit: float) -> Diagnostic:
    stage = node.stage.name.removesuffix(".vjp")
    message = (
        f"stage {node.id} ({node.stage.name}), output {port}, is wrong: the vjp of {stage}, in float64, is off by "
        f"{off:.1e} from autograd through the reference, limit {limit:.1e}"
    )
    help = f"correct vjp, or remove it: autograd through the reference then gives the gradients of {stage}"
    return Diagnostic(codes.OUT_OF_BUDGET, message, function_mark(node, "vjp"), entry_of(node), help)


def op_failure(subject: Subject, bad: Row) -> Diagnostic:
    """Every stage alone does what its reference says; so the edges, or a reference, say something else."""
    spec, name = subject.graph.spec, bad.value
    if bad.id == "file":
        message = f"{name} of {bad.backend}, held against the {bad.against}, is the first out of budget: {bad.why}"
        return Diagnostic(codes.OUT_OF_BUDGET, message)
    what = f"the gradient {name}" if name.startswith("d_") else f"the op's output {name}"
    message = f"{what} is the first out of budget: {bad.why}"
    if spec.definition is None:
        return Diagnostic(codes.OUT_OF_BUDGET, message)
    mark = spec.definition.mark_in(spec.file)
    if bad.verdict.over == OFF and bad.backend == subject.call.backend and subject.call.io != torch.float64:
        return amplified(message, mark)  # else a row of the float64 references had been before it
    output = spec.outputs.get(name)
    notes = [Note("every stage alone is within its budget: the graph and the definition are two different ops")]
    notes += [Note(f"{name} comes from {output.source}", output.source_mark)] if output else []
    help = (
        "one of them is wrong: look for two edges of one type that are swapped, a factor that only one of them has, "
        "lines of the step in another order, an eps that a stage adds; `chunkwise show` lists the edges, and --axes "
        "T=1, then T=2, tells more"
    )
    return Diagnostic(codes.OUT_OF_BUDGET, message, mark, tuple(notes), help)


def amplified(message: str, mark: Mark) -> Diagnostic:
    """The references are the definition in float64, and not when they are rounded."""
    note = Note("in float64 the graph and the definition are one op: what it is given makes it amplify any rounding")
    help = (
        "declare what the inputs are (where: 0..1), and give the keys of a delta rule the length 1 (unit_norm(K), or "
        "the stage l2norm); a smaller --axes T=64 is amplified less"
    )
    return Diagnostic(codes.OUT_OF_BUDGET, message, mark, (note,), help)


def wrong_vjp(subject: Subject) -> tuple[Node, str, float, float] | None:
    """The first vjp that is not the gradient of its reference, with the port and how far it is off. In a coarse dtype
    its own budget may be too wide to tell."""
    nodes = [node for node in subject.graph.nodes.values() if has_vjp(node)]
    exact = staged_values(subject, torch.float64) if nodes else {}
    return next(((node, *off) for node in nodes if (off := vjp_error(subject, node, exact))), None)


def has_vjp(node: Node) -> bool:
    return node.stage.is_vjp and node.stage.reference.stage.vjp is not None


def vjp_error(subject: Subject, node: Node, exact) -> tuple[str, float, float] | None:
    """(port, relative error, limit) of the vjp in float64, without any rounding, against autograd."""
    wide = replace(subject, call=replace(subject.call, io=torch.float64))
    case = stage_case(wide, node, exact)
    got, limit = stage_outputs(wide, node, case.inputs, torch.float64), RHO[subject.call.io] / 1000
    for port, right in case.truth.items():
        off = relative(error_of(got[port], right).norm().item(), right.norm().item())
        if not off <= limit:
            return port, off, limit
    return None


def function_mark(node: Node, name: str) -> Mark:
    return StageSource(Path(node.stage.file)).function(name)


def entry_of(node: Node) -> tuple[Note, ...]:
    return (Note(f"{node.id.partition('.')[0]} stands here in the pipeline", node.mark),) if node.mark else ()
