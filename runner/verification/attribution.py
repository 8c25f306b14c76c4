"""How much of the op's error each stage is to blame for: the op runs again and again, one stage exact at a time.

Exact means the stage's float64 reference on what the stage is handed there, rounded once to its ports' dtypes, which no
implementation can do better. All other stages run as they ran.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import networkx as nx
import torch

from ..backward.vjp_stage import vjp_stage
from ..graphs.graph import Graph, Node
from ..planning.execute import Values
from ..planning.plan import Plan, Step
from .blame import has_vjp, vjp_error
from .budgets import error_of, relative
from .result import Attribution, Swap
from .staged import (
    Subject,
    as_ports,
    cleared,
    result_values,
    run_alone,
    run_whole,
    stage_case,
    stage_outputs,
    staged_values,
    without_vjp,
)


def attribute_errors(
    subject: Subject, truth: Mapping[str, torch.Tensor], progress: Callable[[str], None] = str
) -> tuple[Attribution, ...]:
    """For every output and gradient of the truth (float64, by name), what is left of its error with each stage exact.

    Runs the op once for each stage, and twice more; what a stage makes by itself takes the float64 references after it.
    """
    steps = {step.node.id: (plan, step) for plan in subject.plans for step in plan.steps}
    values = staged_values(subject, torch.float64)
    exact = exact_nodes(subject, [step.node for _, step in steps.values()], values)
    before, left, own = errors(run_with(subject, {}), truth), {}, {}
    for id, (plan, step) in steps.items():
        progress(f"verify with {id} exact")
        left[id] = errors(run_with(subject, {id: exact[id]}), truth)
        own[id] = own_errors(subject, plan, step.node, values)
    all_exact = errors(run_with(subject, exact), truth)

    def swap(id: str, name: str) -> Swap:
        step = steps[id][1]
        return Swap(id, step.node.stage.name, step.backend, left[id][name], own[id][name])

    def of_output(name: str) -> Attribution:
        found = [id for id in upstream(subject.graph, result_values(subject)[name]) if id in steps]
        return Attribution(name, before[name], tuple(swap(id, name) for id in found), all_exact[name])

    return tuple(map(of_output, truth))


def own_errors(subject: Subject, plan: Plan, node: Node, exact: Mapping) -> dict[str, float]:
    """By result, what a node makes by itself: its error on exact inputs, carried on by exact stages."""
    case, results = stage_case(subject, node, exact), result_values(subject)
    got, values = run_alone(subject, plan, case), dict(exact)
    for port, right in case.truth.items():
        name = node.outputs[port]
        values[name] = exact[name] + error_of(cleared(got[port], subject, name), right)
    changed = set(node.outputs.values())
    for later in subject.graph.nodes.values():
        if later.id != node.id and changed & set(later.inputs.values()):
            inputs = {port: values[name] if name else None for port, name in later.inputs.items()}
            outputs = stage_outputs(subject, later, inputs, torch.float64)
            values |= {name: outputs[port] for port, name in later.outputs.items()}
            changed |= set(later.outputs.values())
    return errors({name: values[value] for name, value in results.items()}, {n: exact[v] for n, v in results.items()})


def upstream(graph: Graph, value: str) -> list[str]:
    """The nodes that a value depends on, in running order."""
    producer = graph.values[value].producer
    found = {producer} | nx.ancestors(graph.digraph(), producer) if producer else set()
    return [id for id in graph.nodes if id in found]


def errors(got: Mapping[str, torch.Tensor], truth: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Relative L2 errors; infinite where something is not finite."""
    sizes = {name: (error_of(got[name], right).norm().item(), right.norm().item()) for name, right in truth.items()}
    return {name: relative(*each) if math.isfinite(each[0]) else math.inf for name, each in sizes.items()}


def exact_nodes(subject: Subject, nodes: Sequence[Node], exact: Mapping) -> dict[str, Node]:
    """By id, the nodes whose references are the truth of their stages: they themselves, but for a vjp that is not the
    gradient of its stage; there autograd's stands in."""
    wrong = [node.id for node in nodes if has_vjp(node) and vjp_error(subject, node, exact)]
    return {node.id: by_autograd(subject.graph, node) if node.id in wrong else node for node in nodes}


def by_autograd(graph: Graph, node: Node) -> Node:
    """X.vjp without X's own vjp."""
    forward = graph.nodes[node.id.removesuffix(".vjp")]
    stage = vjp_stage(without_vjp(forward.stage))
    given = {**forward.inputs, **node.inputs}
    return replace(node, stage=stage, inputs={port: given.get(port) for port in stage.contract.inputs})


def run_with(subject: Subject, exact: Mapping[str, Node]) -> Values:
    """The op's results with some of its stages exact. exact: node id -> the node whose reference is run instead."""
    values: Values = {**subject.inputs, **subject.cotangents}

    def observe(step: Step, run: Callable[[], None], outputs: Values) -> None:
        if node := exact.get(step.node.id):
            fill_exactly(subject, node, values, outputs)
        else:
            run()
        values.update({name: outputs[port] for port, name in step.node.outputs.items()})

    return run_whole(subject, observe)


def fill_exactly(subject: Subject, node: Node, values: Values, outputs: Values) -> None:
    """outputs: by port; None where nobody reads them."""
    inputs = {port: values[name] if name else None for port, name in node.inputs.items()}
    results = as_ports(node, stage_outputs(subject, node, inputs, torch.float64), subject.call.io)
    for port, x in outputs.items():
        if x is not None and results[port] is not None:
            x.copy_(results[port])
        else:
            outputs[port] = None
