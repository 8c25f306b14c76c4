"""Is this pipeline right, on this device, with this back end? Each stage alone, then the op against its definition.

A stage gets exact inputs (the float64 values of the staged form, rounded to their ports' dtypes) and is held
against its float64 reference; the op is held against its ``definition``. Budgets come from rounding.py, never from the
kernels under test. Buffers are full of nan before a kernel writes them, and so are input rows past the last sequence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ..stages._seqs import Seqs
from .budgets import FEW, Verdict, float32_noise, judge
from .execute import execute, prepare
from .function import Op
from .generate import ILL_CONDITIONED
from .graph import Graph, Node
from .oracle import definition_outputs
from .plan import Plan, Step, make_plan
from .references import rounded, run_reference
from .rounding import RoundedDots, Stochastic, nearest
from .sequences import Packing, seqs_of
from .sizes import local_sizes, node_parameters

DRAWS = 8
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One tensor that was checked. id: a node's id, or ``op``. against: what was taken as the truth."""

    id: str
    stage: str
    value: str
    backend: str
    against: str
    verdict: Verdict


@dataclass(frozen=True)
class Verification:
    """rows in running order, the op's last. heads: the head groups that were checked, None for all."""

    pipeline: str
    sizes: Mapping[str, int]
    io: torch.dtype
    backend: str
    case: str
    rows: tuple[Row, ...]
    heads: tuple[int, ...] | None = None

    @property
    def ok(self) -> bool:
        return all(row.verdict.ok for row in self.rows)

    @property
    def first_bad(self) -> Row | None:
        return next((row for row in self.rows if not row.verdict.ok), None)


@dataclass(frozen=True)
class Subject:
    """What is verified: one plan on one set of inputs."""

    plan: Plan
    inputs: Mapping[str, torch.Tensor | None]
    params: Mapping[str, float]
    packing: Packing | None
    case: str = "typical"

    @property
    def seqs(self) -> Seqs:
        return seqs_of(self.packing, self.plan.sizes)

    @property
    def graph(self) -> Graph:
        return self.plan.graph


def verify(op: Op, inputs: Mapping, *, cu_seqlens=None, seqlens=None, params=None, case="typical", progress: Progress = str) -> Verification:
    """Check every stage and the op on these inputs (see generate.make_inputs for generated ones)."""
    given = {**inputs, **(params or {})}
    plan, tensors, params, packing = op.prepare(given, cu_seqlens, seqlens)
    subject = Subject(plan, poisoned_tail(plan, tensors, packing), params, packing, case)
    exact = staged_values(subject, torch.float64)
    noise = float32_noise(plan.sizes, gate_span(plan.graph, exact))
    rows = []
    for step in plan.steps:
        progress(f"verify {step.node.id}")
        rows += check_stage(subject, step, exact, noise)
    del exact
    progress("verify the op")
    rows += check_op(subject, noise)
    return Verification(plan.graph.name, plan.sizes, plan.io, plan.backend, case, tuple(rows))


def nan_filled(shape, dtype, device) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.full(shape, float("nan"), dtype=dtype, device=device)
    return torch.full(shape, torch.iinfo(dtype).min, dtype=dtype, device=device)


def poisoned_tail(plan: Plan, tensors: Mapping, packing: Packing | None) -> dict:
    """Inputs whose rows past the last sequence are nan."""
    if packing is None:
        return dict(tensors)
    tokens, result = sum(packing.on_host()), {}
    for name, x in tensors.items():
        axes = plan.graph.inputs[name].axes
        if x is not None and "T" in axes and x.is_floating_point():
            x = x.clone()
            x.narrow(axes.index("T"), tokens, plan.sizes["T"] - tokens).fill_(float("nan"))
        result[name] = x
    return result


def staged_values(subject: Subject, compute: torch.dtype, rounding=None) -> dict[str, torch.Tensor | None]:
    """Every value of the graph by the chain of references: exact in float64, or as the rounding model has it."""
    values = dict(subject.inputs)
    io = subject.plan.io
    for node in subject.graph.nodes.values():
        outputs = reference_outputs(subject, node, values, compute, rounding)
        if rounding is not None:
            outputs = as_ports(node, outputs, io, rounding)
        values.update({node.outputs[port]: x for port, x in outputs.items()})
    return values


def reference_outputs(subject: Subject, node: Node, values: Mapping, compute, rounding=None):
    inputs = {port: values[name] if name else None for port, name in node.inputs.items()}
    keywords = {**local_sizes(node, subject.plan.sizes), **node_parameters(node, subject.plan.sizes, subject.params)}
    dots = RoundedDots(subject.plan.io, rounding) if rounding else None
    return run_reference(node, inputs, keywords, subject.seqs, compute, dots)


def as_ports(node: Node, outputs, io: torch.dtype, rounding=nearest):
    """Outputs as their ports hold them."""
    if rounding is not nearest:
        ports = node.stage.contract.outputs
        outputs = {n: rounding(x, io) if x is not None and ports[n].dtype == "io" else x for n, x in outputs.items()}
    return rounded(node, outputs, io, set(outputs))


def gate_span(graph: Graph, values: Mapping) -> float:
    """The largest decay inside a chunk, in nats, counted down to float32's least normal number."""
    sums = [values[v.name] for v in graph.values.values() if v.unit == "log_decay/log2/chunk_sum"]
    spans = [x.abs().clamp(max=2000).max().item() * 0.6931 for x in sums if x is not None and x.numel()]
    return max(spans, default=0.0)


def models(make: Callable, truths: Mapping[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    """Results of M per output: one, or several stochastic draws for tensors of few numbers.

    make: rounding -> outputs by name.
    """
    once = make(nearest)
    result = {name: [once[name]] for name in truths}
    few = [name for name, truth in truths.items() if truth.numel() < FEW]
    if few:
        draws = [make(Stochastic(seed)) for seed in range(DRAWS)]
        result.update({name: [draw[name] for draw in draws] for name in few})
    return result


def check_stage(subject: Subject, step: Step, exact: Mapping, noise: float) -> list[Row]:
    node, plan = step.node, subject.plan
    inputs = {
        name: exact[name].to(subject_dtype(subject, name)) if exact[name] is not None and exact[name].is_floating_point() else exact[name]
        for name in node.inputs.values()
        if name
    }
    truth = without_none(reference_outputs(subject, node, inputs, torch.float64))
    model = models(
        lambda rounding: as_ports(node, reference_outputs(subject, node, inputs, torch.float32, rounding), plan.io, rounding), truth
    ) if plan.io != torch.float64 else {name: [x] for name, x in truth.items()}
    got = run_alone(subject, node, inputs)
    rows = []
    for port, right in truth.items():
        axes = subject.graph.values[node.outputs[port]].axes
        clean = cleared(got[port], axes, subject.seqs)
        verdict = judge(clean, right, model[port], axes, subject.seqs, plan.io, noise, subject.case in ILL_CONDITIONED)
        rows.append(Row(node.id, node.stage.name, port, step.backend, "float64 reference", verdict))
    return rows


def subject_dtype(subject: Subject, name: str) -> torch.dtype:
    from .dtypes import port_dtype

    return port_dtype(subject.graph.values[name].dtype, subject.plan.io)


def without_none(outputs: Mapping) -> dict[str, torch.Tensor]:
    return {name: x for name, x in outputs.items() if x is not None}


def run_alone(subject: Subject, node: Node, inputs: Mapping) -> dict[str, torch.Tensor | None]:
    """One node on given values, by the plan's back end, every output asked for."""
    plan = subject.plan
    single = Graph(
        plan.graph.spec, plan.graph.absent, {}, plan.graph.values, {node.id: node}, {name: name for name in node.outputs.values()}
    )
    names = {name: name for name in node.outputs.values()}
    alone = make_plan(single, plan.sizes, plan.io, plan.backend, plan.device, names)
    outputs, run = prepare(alone.steps[0], alone, dict(inputs), subject.params, subject.seqs, nan_filled)
    run()
    return outputs


def cleared(x: torch.Tensor, axes: tuple, seqs: Seqs) -> torch.Tensor:
    """A stage's output without what lies past the sequences, which stages leave open."""
    if not seqs.packed:
        return x
    x = x.clone()
    slots = sum(-(-length // seqs.C) for length in seqs.lengths)
    for axis, used in (("T", sum(seqs.lengths)), ("NT", slots)):
        if axis in axes:
            dim = axes.index(axis)
            x.narrow(dim, used, x.shape[dim] - used).zero_()
    return x


def check_op(subject: Subject, noise: float) -> list[Row]:
    plan, graph = subject.plan, subject.graph
    got = execute(plan, subject.inputs, subject.params, subject.seqs, make=nan_filled)
    truth, against = truth_of(subject)
    truth = {name: truth[name] for name, source in graph.outputs.items() if source is not None}

    def chain(rounding):
        values = staged_values(subject, torch.float32, rounding)
        return {name: values[graph.outputs[name]] for name in truth}

    model = models(chain, truth) if plan.io != torch.float64 else {name: [x] for name, x in truth.items()}
    rows = []
    for name, right in truth.items():
        axes = graph.values[graph.outputs[name]].axes
        verdict = judge(got[name], right, model[name], axes, subject.seqs, plan.io, noise, subject.case in ILL_CONDITIONED)
        rows.append(Row("op", graph.name, name, plan.backend, against, verdict))
    return rows


def truth_of(subject: Subject) -> tuple[dict[str, torch.Tensor], str]:
    """The outputs in float64 by the definition; by the chain of references where the file has none."""
    graph = subject.graph
    if graph.spec.definition is None:
        values = staged_values(subject, torch.float64)
        return {name: values[source] for name, source in graph.outputs.items() if source}, "float64 references (no definition)"
    return definition_outputs(subject.graph, subject.inputs, subject.params, subject.plan.sizes, subject.packing), "definition"
