"""The staged form by its references: exact in float64, or as the rounding model has it; and single stages on their own.

This is what verification holds kernels against; nothing here knows a budget.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from ...stages._contract import HELD
from ...stages._seqs import Seqs
from ..backward.vjp_stage import vjp_stage
from ..calling.call import Call
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph, Node
from ..graphs.sizes import local_sizes, node_parameters
from ..planning.dtypes import port_dtype
from ..planning.execute import Observer, execute, prepare, run_step
from ..planning.plan import Plan, Step, launchers_mark, make_plan
from ..planning.references import rounded, run_reference
from ..stage_files.stage_library import Stage
from .budgets import FEW, deciding
from .narrowing import all_in_float64
from .rounding import RoundedDots, RoundedResults, Stochastic, model_dtype, nearest

DRAWS = 8
SAMPLED = 2**16
"""Chunk sums of which decays are counted."""


@dataclass(frozen=True)
class Subject:
    """What is verified: a call, its graph (with or without a backward pass), its plans, and what comes in.

    cotangents: cotangent value -> tensor.
    """

    call: Call
    graph: Graph
    plans: tuple[Plan, ...]
    inputs: Mapping[str, torch.Tensor | None]
    cotangents: Mapping[str, torch.Tensor]
    case: str = "typical"

    @property
    def seqs(self) -> Seqs:
        return self.call.seqs

    @property
    def written(self) -> Graph:
        """The graph as the file has it."""
        return self.graph.file or self.graph


def nan_filled(shape, dtype, device) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.full(shape, float("nan"), dtype=dtype, device=device)
    return torch.full(shape, torch.iinfo(dtype).min, dtype=dtype, device=device)


def staged_values(
    subject: Subject, compute: torch.dtype, rounding=None, choices: Mapping | None = None
) -> dict[str, torch.Tensor | None]:
    """Every value by the chain of references: exact in float64, also those that a fused stage keeps to itself, and what
    is between stages that stand for others; or those of the graph that runs, as the rounding model has it. What is
    rebuilt by a copy of its stage is what forward made, bit for bit.

    choices: whole numbers that stand for those of the chain: a choice made otherwise is no rounding error."""
    values = {**subject.inputs, **subject.cotangents}
    graph = subject.graph if rounding else subject.written
    between = [
        node for node in subject.graph.nodes.values() if not graph.values.keys() >= set(node.outputs.values())
    ]
    for node in (*graph.nodes.values(), *between):
        original = graph.nodes.get(node.id.removesuffix(".rebuild"))
        if node.phase == "rebuild" and original and not node.replaces:
            values.update({name: values[original.outputs[port]] for port, name in node.outputs.items()})
            continue
        inputs = {port: values[name] if name else None for port, name in node.inputs.items()}
        outputs = stage_outputs(subject, node, inputs, compute, rounding)
        if rounding is not None:
            outputs = as_ports(node, outputs, subject.call.io, rounding)
        values = {name: outputs[port] for port, name in node.outputs.items()} | values
        values.update({name: choices[name] for name in node.outputs.values() if choices and name in choices})
    return values


def stage_outputs(subject: Subject, node: Node, inputs: Mapping, compute: torch.dtype, rounding=None) -> dict:
    """One stage's reference; inputs by port."""
    named, dtype = keywords(subject, node), model_dtype(subject.call.io)
    if isinstance(rounding, Stochastic) and dtype == torch.float32:
        return run_reference(node, inputs, named, subject.seqs, torch.float64, RoundedResults(rounding))
    watch = all_in_float64(node) if compute == torch.float64 else None
    return run_reference(
        node, inputs, named, subject.seqs, compute, RoundedDots(dtype, rounding) if rounding else watch
    )


def keywords(subject: Subject, node: Node) -> dict[str, float]:
    return {**local_sizes(node, subject.call.sizes), **node_parameters(node, subject.call.sizes, subject.call.params)}


def as_ports(node: Node, outputs: Mapping, io: torch.dtype, rounding=nearest) -> dict:
    """Outputs as their ports hold them."""
    if rounding is not nearest:
        ports = node.stage.contract.outputs
        dtype = model_dtype(io)
        outputs = {n: rounding(x, dtype) if x is not None and ports[n].dtype == "io" else x for n, x in outputs.items()}
    return rounded(node, outputs, io, set(outputs))


@dataclass(frozen=True)
class StageCase:
    """A stage alone. inputs: by port. truth: outputs by port, in float64."""

    node: Node
    inputs: Mapping[str, torch.Tensor | None]
    truth: Mapping[str, torch.Tensor]


def stage_case(subject: Subject, node: Node, exact: Mapping) -> StageCase:
    """A stage on exact inputs rounded to their dtypes, and what it must give."""
    inputs = {port: port_value(subject, exact, name) for port, name in node.inputs.items()}
    if node.stage.is_vjp:
        return vjp_case(subject, node, inputs, exact)
    truth = stage_outputs(subject, node, inputs, torch.float64)
    return StageCase(node, inputs, {port: truth[port] for port in node.outputs if truth[port] is not None})


def vjp_case(subject: Subject, node: Node, inputs: dict, exact: Mapping) -> StageCase:
    """The truth is autograd through the stage's reference. What the vjp reads of the stage's outputs is made from
    the same rounded inputs, so that both speak of one point."""
    forward = subject.written.nodes[node.id.removesuffix(".vjp")]
    given = {port: port_value(subject, exact, name) for port, name in forward.inputs.items()}
    read = [port for port in forward.outputs if port in inputs]
    if read:
        outputs, ports = stage_outputs(subject, forward, given, torch.float64), forward.stage.contract.outputs
        inputs |= {port: outputs[port].to(port_dtype(ports[port].dtype, subject.call.io)).contiguous() for port in read}
    by_autograd = replace(node, stage=vjp_stage(without_vjp(forward.stage)))
    cotangents = {f"d_{port}": inputs.get(f"d_{port}") for port in forward.stage.contract.outputs}
    truth = stage_outputs(subject, by_autograd, {**cotangents, **given}, torch.float64)
    return StageCase(node, inputs, {port: truth[port] for port in node.outputs})


@cache
def without_vjp(stage: Stage) -> Stage:
    return replace(stage, vjp=None, vjp_launchers=(), vjp_stages=None)


def port_value(subject: Subject, exact: Mapping, name: str | None) -> torch.Tensor | None:
    x = exact[name] if name else None
    dtype = (subject.written.values.get(name) or subject.graph.values[name]).dtype if name else None
    if x is None or dtype in HELD:
        return None if x is None else x.contiguous()
    return x.to(port_dtype(dtype, subject.call.io)).contiguous()


def models(make: Callable, truths: Mapping[str, torch.Tensor], few_roundings=False) -> dict[str, list[torch.Tensor]]:
    """Results of M per output: one, or several stochastic draws where few numbers or few roundings decide.

    make: rounding -> outputs by name.
    """
    once = make(nearest)
    result = {name: [once[name]] for name in truths}
    few = [name for name, truth in truths.items() if few_roundings or deciding(truth) < FEW]
    if few:
        draws = [make(Stochastic(seed)) for seed in range(DRAWS)]
        result.update({name: [draw[name] for draw in draws] for name in few})
    return result


def chunk_sums(graph: Graph, values: Mapping) -> list[torch.Tensor]:
    """[B, T, HV] or [B, T, HV, K]."""
    found = [values[value.name] for value in graph.values.values() if value.unit == "log_decay/log2/chunk_sum"]
    return [x for x in found if x is not None and x.numel()]


def gate_span(graph: Graph, values: Mapping) -> float:
    """The largest decay inside a chunk, in nats, counted down to float32's least normal number."""
    return max((x.abs().clamp(max=2000).max().item() * 0.6931 for x in chunk_sums(graph, values)), default=0.0)


def has_chunks(plans: Sequence[Plan]) -> bool:
    """Whether any stage that runs goes by chunks; a scan in its recurrent form goes by token."""
    stages = [step.node.stage for plan in plans for step in plan.steps]
    return any(not {"C", "NT"}.isdisjoint(stage.axis_names) for stage in stages)


def repeats(graph: Graph, values: Mapping, T: int) -> float:
    """How many tokens a state remembers, at most T, under a decay that is one for all of a head's: all where it is 1,
    for the model lets an exponential err there too."""
    slopes = [values[value.name] for value in graph.values.values() if value.unit == "log_decay/ln/slope"]
    lost = [-torch.expm1(x.double()).max().item() for x in slopes if x is not None and x.numel()]
    return max((min(1 / least if least > 0 else math.inf, T) for least in lost), default=0.0)


def decaying_chunks(graph: Graph, values: Mapping, C: int) -> float:
    """How many chunks of a head decay each in its own way; all of one head alike where its decay is fixed."""
    counts = []
    for x in chunk_sums(graph, values):
        first = (x[..., 0] if x.dim() == 4 else x).flatten()
        counts.append(first[:: max(1, first.numel() // SAMPLED)].unique().numel() / C)
    return min(counts, default=math.inf)


def run_alone(subject: Subject, plan: Plan, case: StageCase) -> dict[str, torch.Tensor | None]:
    """One node on given values, by the plan's back end, every output of the node asked for. Raises ChunkwiseError where
    it writes what it was given."""
    node, graph = case.node, subject.graph
    single = replace(graph, nodes={node.id: node})
    names = {name: name for name in node.outputs.values()}
    given = [name for name in node.inputs.values() if name]
    alone = make_plan(single, plan.sizes, plan.io, plan.backend, plan.device, names, given)
    values = unshared(graph, {node.inputs[port]: x for port, x in case.inputs.items() if node.inputs[port]})
    before = {port: x.clone() for port, x in case.inputs.items() if x is not None}
    outputs, run = prepare(alone.steps[0], alone, values, subject.call.params, subject.seqs, nan_filled)
    run()
    for port, x in before.items():
        if not same_bits(x, case.inputs[port]):
            raise ChunkwiseError(written_input(alone.steps[0], port))
    return outputs


def cleared(x: torch.Tensor, subject: Subject, value: str) -> torch.Tensor:
    """A stage's output without what lies past the sequences, which stages leave open."""
    seqs, axes = subject.seqs, subject.graph.values[value].axes
    if not seqs.packed:
        return x
    x = x.clone()
    slots = sum(-(-length // seqs.C) for length in seqs.lengths)
    for axis, used in (("T", sum(seqs.lengths)), ("NT", slots)):
        if axis in axes:
            dim = axes.index(axis)
            x.narrow(dim, used, x.shape[dim] - used).zero_()
    return x


def unshared(graph: Graph, tensors: Mapping[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
    """The tensors, with copies of those that a run writes over: what verification holds stays as it came in."""
    written = graph.mutated.values()
    return {name: x.clone() if x is not None and name in written else x for name, x in tensors.items()}


def same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize]
    return torch.equal(x.view(whole), y.view(whole))


def written_input(step: Step, port: str) -> Diagnostic:
    message = f"{step.node.id} ({step.node.stage.name}, {step.backend}) writes its input {port}"
    mark = launchers_mark(step.node) if step.launcher else None
    return Diagnostic(codes.STAGE_FAILED, message, mark, help="inputs are never written: make a new tensor, or scratch")


def result_values(subject: Subject) -> dict[str, str]:
    """Outputs by name and gradients by ``d_<input>`` -> the values that they are."""
    return dict(subject.call.wanted) | {f"d_{name}": value for name, value in subject.graph.gradients.items()}


def run_whole(subject: Subject, observe: Observer = run_step) -> dict[str, torch.Tensor]:
    """Outputs by name and gradients by ``d_<input>``, by the call's back end, into buffers full of nan."""
    call, forward = subject.call, subject.plans[0]
    inputs = unshared(subject.graph, subject.inputs)
    results = execute(forward, inputs, call.params, call.seqs, observe, make=nan_filled)
    if len(subject.plans) == 1:
        return results
    values = {**inputs, **subject.cotangents, **{name: results[name] for name in subject.graph.kept}}
    gradients = execute(subject.plans[1], values, call.params, call.seqs, observe, make=nan_filled)
    return {**results, **{f"d_{name}": x for name, x in gradients.items()}}
