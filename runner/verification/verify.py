"""Is this pipeline right, on this device, with this back end? Each stage alone, then the op against its definition.

A stage gets exact inputs (the float64 values of the staged form, rounded to their ports' dtypes) and is held
against its float64 reference, a vjp against float64 autograd of the reference; the op is held against its
``definition``, outputs and gradients. Budgets come from rounding.py, never from the kernels under test. Buffers are
full of nan before a kernel writes them, and so are the rows past the last sequence of everything that comes in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from ..calling.call import Call
from ..calling.function import Op
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph
from ..planning.plan import Plan
from .attribution import attribute_errors
from .blame import failure
from .breaches import Breach, breaches
from .budgets import FEW, OFF, Verdict, arithmetic_noise, cancelled, decay_noise, error_of, judge, relative
from .cancellation import is_gradient, uncancelled, uncancelled_gradient
from .each_alone import each_alone
from .generate import ILL_CONDITIONED, make_cotangents
from .head_subset import pick_heads, take_heads
from .oracle import definition_outputs, gradients_and_terms
from .peer_rows import peer_rows
from .result import Row, Verification
from .rounding import RHO, model_dtype
from .staged import (
    StageCase,
    Subject,
    as_ports,
    cleared,
    decaying_chunks,
    gate_span,
    has_chunks,
    models,
    repeats,
    result_values,
    run_alone,
    run_whole,
    stage_case,
    stage_outputs,
    staged_values,
)

Progress = Callable[[str], None]


def verify(
    op: Op,
    inputs: Mapping,
    *,
    cu_seqlens=None,
    seqlens=None,
    params=None,
    case="typical",
    backward=False,
    seed=0,
    expected: Mapping[str, torch.Tensor] | None = None,
    cotangents: Mapping[str, torch.Tensor] | None = None,
    attribute: bool = False,
    made_by: str = "file",
    recut: bool = False,
    outputs: Sequence[str] | None = None,
    vs: Sequence[str] = (),
    progress: Progress = str,
) -> Verification:
    """Check every stage and the op on these inputs (see generate.make_inputs for generated ones).

    backward: gradients too, of every floating-point input, for the cotangents given and random ones for the other
    outputs. expected: outputs and gradients (``d_<input>``) of another implementation, to compare with as well;
    made_by: what that is called in the rows. recut: its chunks end at other rows.
    outputs: those that are asked for; all without. vs: other implementations, to be held against the same definition.
    attribute: say how much of each result's error each stage is to blame for, whether that passes or not.
    """
    call = op.bind({**inputs, **(params or {})}, cu_seqlens, seqlens, outputs)
    whole = make_subject(call, case, backward, seed, cotangents or {})
    heads = pick_heads(whole.graph, call.sizes, call.device, call.params)
    subject = on_heads(whole, heads) if heads else whole
    exact = staged_values(subject, torch.float64)
    span = gate_span(subject.graph, exact)
    chunked, T = has_chunks(subject.plans), call.sizes.get("T", 0)
    again = 0.0 if chunked else repeats(subject.graph, exact, T)
    noise = arithmetic_noise(call.io, call.sizes, span, chunked, again)
    other_chunks = decay_noise(call.io, span) if recut else 0.0
    few = few_roundings(call, decaying_chunks(subject.graph, exact, call.sizes.get("C", 1)))
    rows = []
    for plan in subject.plans:
        for step in plan.steps:
            progress(f"verify {step.node.id}")
            rows += check_stage(subject, plan, step, exact, noise, few)
    staged = {name: exact[value] for name, value in result_values(subject).items()}
    choices = {name: exact[name] for name, value in subject.graph.values.items() if value.dtype == "int"}
    del exact
    progress("verify the op")
    truth, held = truth_of(subject), comparable(subject, expected or {}, cotangents or {})
    judged = op_judge(subject, noise, few, choices, truth)
    rows += check_op(subject, whole, heads, staged, truth, judged, held, made_by, other_chunks)
    theirs = [row for name in vs for row in of_peer(name, whole, heads, truth, judged, progress)]
    lengths, found = call.packing.on_host() if call.packing else None, failure(subject, rows)
    blamed = attribute_errors(subject, truth.results, progress) if attribute else ()
    notes = tuple(dict.fromkeys(note for plan in subject.plans for note in plan.notes))
    return Verification(
        call.graph.name, call.sizes, call.io, call.backend, case, tuple(rows), heads, lengths, found, blamed,
        tuple(theirs), notes,
    )  # fmt: skip


def make_subject(call: Call, case: str, backward: bool, seed: int, given: Mapping[str, torch.Tensor]) -> Subject:
    inputs = poisoned_tail(call.graph, call.contiguous, call)
    if not backward:
        return Subject(call, call.graph, (call.forward_plan(),), inputs, {}, case)
    joint = call.joint(call.trainable(), call.wanted)
    cotangents = make_cotangents(joint, call.sizes, call.io, call.device, seed)
    for name in given.keys() & joint.cotangents.keys():
        value = joint.cotangents[name]
        check_shape(f"cotangent.{name}", given[name], cotangents[value].shape)
        cotangents[value] = given[name].to(cotangents[value].dtype)
    cotangents = poisoned_tail(joint, cotangents, call)
    return Subject(call, joint, (call.forward_plan(joint), call.backward_plan(joint)), inputs, cotangents, case)


def on_heads(whole: Subject, heads: tuple[int, ...]) -> Subject:
    """The same call on some of its heads."""
    call, values = whole.call, whole.graph.values

    def part(tensors: Mapping) -> dict:
        return {
            name: take_heads(x, values[name].axes if x is not None else (), heads, call.sizes)
            for name, x in tensors.items()
        }

    inputs = part(whole.inputs)
    seqlens = call.packing.on_host() if call.packing else None
    small = call.op.bind({**inputs, **call.params}, seqlens=seqlens, outputs=list(call.wanted))
    subject = make_subject(small, whole.case, len(whole.plans) > 1, 0, {})
    return replace(subject, inputs=inputs, cotangents=part(whole.cotangents))


def poisoned_tail(graph: Graph, tensors: Mapping, call: Call) -> dict:
    """Copies, which a faulty stage may write without harm to the caller; rows past the last sequence are nan."""
    tokens, result = sum(call.packing.on_host()) if call.packing else call.sizes.get("T", 0), {}
    for name, x in tensors.items():
        axes = graph.values[name].axes if name in graph.values else ()
        x = x.clone() if x is not None else None
        if x is not None and "T" in axes and x.is_floating_point():
            x.narrow(axes.index("T"), tokens, call.sizes["T"] - tokens).fill_(float("nan"))
        result[name] = x
    return result


def check_stage(subject: Subject, plan: Plan, step, exact: Mapping, noise: float, few: bool) -> list[Row]:
    """Against one draw of the rounding model first; against several where that says no and few roundings decide."""
    node, io = step.node, plan.io
    case = stage_case(subject, node, exact)

    def rounded_model(rounding):
        return as_ports(node, stage_outputs(subject, node, case.inputs, torch.float32, rounding), io, rounding)

    made = run_alone(subject, plan, case)
    got = {port: cleared(made[port], subject, node.outputs[port]) for port in case.truth}
    against = "float64 autograd" if node.stage.is_vjp else "float64 reference"

    def judged(port: str, model: list[torch.Tensor]) -> Row:
        value, terms = node.outputs[port], partial(uncancelled, subject, case, port) if is_gradient(node) else None
        found = row(
            subject, node.id, node.stage.name, port, step.backend, against, got[port], case.truth[port], model, value,
            noise, terms,
        )  # fmt: skip
        return replace(found, breach=broken_law(subject, case, value, got[port]))

    def judged_all(few_roundings: bool) -> list[Row]:
        return [judged(port, model) for port, model in models(rounded_model, case.truth, few_roundings).items()]

    rows = judged_all(False)
    if few and not all(each.ok for each in rows):
        rows = judged_all(True)
    return [*rows, *each_alone(subject, case)]


def broken_law(subject: Subject, case: StageCase, value: str, x: torch.Tensor) -> Breach | None:
    """The first law that a stage's output breaks. Its promise leans on the laws of its inputs: where one of these is
    broken already, the fault lies before."""
    values, seqs = subject.graph.values, subject.seqs
    given = ((values[name], case.inputs[port]) for port, name in case.node.inputs.items() if name)
    if not values[value].laws or any(breaches(each, came, seqs) for each, came in given):
        return None
    return next(iter(breaches(values[value], x, seqs)), None)


def row(
    subject: Subject, id, stage, name, backend, against, got, truth, model, value: str, noise: float, terms=None,
    other_chunks: float = 0.0,
) -> Row:  # fmt: skip
    axes, ill = subject.graph.values[value].axes, subject.case in ILL_CONDITIONED
    verdict = judge(got, truth, model, axes, subject.seqs, subject.call.io, noise, ill, terms, other_chunks)
    return Row(id, stage, name, backend, against, verdict)


def comparable(subject: Subject, expected: Mapping, cotangents: Mapping) -> dict[str, torch.Tensor]:
    """The expected results that speak of this subject: gradients only where all that comes in is given too."""
    gradients = subject.graph.cotangents.keys() <= cotangents.keys()
    names = set(subject.call.wanted) | ({f"d_{name}" for name in subject.graph.gradients} if gradients else set())
    return {name: x for name, x in expected.items() if name in names}


def check_shape(name: str, x: torch.Tensor, wanted) -> None:
    if tuple(x.shape) != tuple(wanted):
        message = f"{name} has the shape {list(x.shape)}, these inputs make it {list(wanted)}"
        raise ChunkwiseError(Diagnostic(codes.INPUTS_FILE, message))


def op_judge(subject: Subject, noise: float, few: bool, choices: Mapping, right: "Truth") -> Callable[..., Row]:
    """What holds a result of the op, whoever made it, against the truth or against another's (id, name, back end,
    against, got, truth). choices: whole numbers of the float64 references, by value."""
    graph, names = subject.graph, result_values(subject)
    truth, terms, _ = right

    def chain(rounding):
        values = staged_values(subject, torch.float32, rounding, choices)
        return {name: values[names[name]] for name in truth}

    model = models(chain, truth, few_roundings=few)

    def judged(id, name, backend, against, got, right, other_chunks=0.0) -> Row:
        value, summed = names[name], sums_of(subject, name, terms)
        return row(
            subject, id, graph.name, name, backend, against, got, right, model[name], value, noise, summed, other_chunks
        )

    return judged


def sums_of(subject: Subject, name: str, terms: Mapping) -> Callable[[], torch.Tensor] | None:
    """gradient_terms of a gradient; None of an output."""
    if name in subject.call.wanted:
        return None
    return partial(gradient_terms, subject, result_values(subject)[name], terms.get(name))


def check_op(
    subject: Subject, whole: Subject, heads, staged: Mapping, right: "Truth", judged: Callable[..., Row],
    expected: Mapping, made_by: str, other_chunks: float,
) -> list[Row]:  # fmt: skip
    """The whole op, forward and, where the subject has a backward pass, every gradient; then what was expected, as one
    more implementation, and the op against it. staged: results of the float64 references."""
    call, names = subject.call, result_values(subject)
    got = {name: part(whole, name, x, heads) for name, x in run_whole(whole).items() if name in names}
    expected = {name: part(whole, name, x, heads) for name, x in expected.items()}
    truth, terms, against = right
    summed = {name: sums_of(subject, name, terms) for name in truth if name not in call.wanted}
    rows = wrong_references(subject, staged, truth, summed)
    rows += [judged("op", name, call.backend, against, got[name], right) for name, right in truth.items()]
    for name, x in expected.items():
        check_shape(f"expected.{name}", x, truth[name].shape)
        rows.append(judged("file", name, made_by, against, x, truth[name], other_chunks))
        rows.append(judged("file", name, call.backend, made_by, got[name], x.double(), other_chunks))
    return rows


def part(whole: Subject, name: str, x: torch.Tensor, heads) -> torch.Tensor:
    """Of a result of the whole call what is held against the truth: some heads, or all."""
    axes = whole.graph.values[result_values(whole)[name]].axes
    return take_heads(x, axes, heads, whole.call.sizes) if heads else x


def of_peer(name: str, whole: Subject, heads, right: "Truth", judged: Callable[..., Row], progress: Progress):
    """Its rows (peer_rows.py)."""
    progress(f"verify {name} beside it")

    def beside(value: str, x: torch.Tensor) -> Row:
        mine = part(whole, value, x, heads)
        check_shape(value, mine, right.results[value].shape)
        return judged(name, value, name, right.against, mine, right.results[value])

    return peer_rows(name, whole, right.results, beside)


def gradient_terms(subject: Subject, value: str, by_token: torch.Tensor | None) -> torch.Tensor:
    """How large a gradient of the op would be if nothing in it cancelled: by_token, the root of the squares of what the
    tokens give; or by the sums inside the vjp that makes it, where these are larger."""
    found = [x for x in (by_token, uncancelled_gradient(subject, value)) if x is not None]
    return max(found, key=torch.norm) if found else torch.zeros(())


def few_roundings(call: Call, decays: float) -> bool:
    """In float32 one slip of a chunk sum moves every row, and a state's every number, that decays by it: where chunks
    (tokens, where there are none), those with a decay of their own, or states are few, one draw says little. Attention
    has none of them: its rounding is spread over rows."""
    definition = call.graph.spec.definition
    if definition is not None and definition.dense:
        return False
    sizes = call.sizes
    heads = sizes.get("HV", 1)
    chunks = min(decays, sizes.get("B", 1) * heads * sizes.get("NT", sizes.get("T", 1)))
    states = sizes.get("N", 1) * heads
    return model_dtype(call.io) == torch.float32 and (chunks < FEW or states < FEW // 2)


def wrong_references(subject: Subject, staged: Mapping, truth: Mapping, summed: Mapping) -> list[Row]:
    """Rows for results that even the float64 references have otherwise than the definition. A budget rests on them, so
    an error in one that is less than the cap would pass in a coarse dtype."""
    io, rows = subject.call.io, []
    limit = RHO[io] / 1000
    for name, right in truth.items():
        error = error_of(staged[name], right)
        off = relative(error.norm().item(), right.norm().item())
        if off > limit and name in summed and cancelled(right, terms := summed[name]()):
            off = relative(error.norm().item(), terms.norm().item())
        if io != torch.float64 and off > limit:
            why = f"the references, in float64, are off by {off:.1e} from the definition, limit {limit:.1e}"
            verdict = Verdict(False, off, limit, off, limit, off, limit, why, OFF)
            rows.append(Row("op", subject.graph.name, name, "float64 references", "definition", verdict))
    return rows


class Truth(NamedTuple):
    """results: outputs and gradients (``d_<input>``) in float64. terms: of gradients that are sums over tokens, the
    root of their terms' squares. against: where they come from."""

    results: dict[str, torch.Tensor]
    terms: dict[str, torch.Tensor]
    against: str


def truth_of(subject: Subject) -> Truth:
    """By the definition; by the references where the file has none."""
    call, graph = subject.call, subject.graph
    if graph.spec.definition is None:
        values = staged_values(subject, torch.float64)
        results = {name: values[value].double() for name, value in result_values(subject).items()}
        return Truth(results, {}, "float64 references (no definition)")
    outputs = definition_outputs(graph, subject.inputs, call.params, call.sizes, call.packing)
    found, terms = {name: outputs[name] for name in call.wanted}, {}
    if graph.gradients:
        cotangents = {name: subject.cotangents[value] for name, value in graph.cotangents.items()}
        given = (subject.inputs, cotangents, call.params, call.sizes, call.packing)
        gradients, of_terms = gradients_and_terms(graph, *given)
        found |= {f"d_{name}": x for name, x in gradients.items()}
        terms = {f"d_{name}": x for name, x in of_terms.items()}
    missing = [name for name, x in found.items() if x is None]
    if missing:
        message = f"the definition leaves {', '.join(missing)} without a value for these inputs"
        raise ChunkwiseError(Diagnostic(codes.DEFINITION, message, graph.spec.definition.mark))
    return Truth(found, terms, "definition")
