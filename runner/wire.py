"""Names resolved: which stage, port and source each edge means, and an order in which the stages can run."""

from collections.abc import Mapping

import networkx as nx

from . import codes
from .errors import Diagnostic, Note
from .hints import nearest
from .spec import EdgeSpec, PipelineSpec, StageSpec
from .stage_library import Stage


def did_you_mean(name: str, names) -> str | None:
    close = nearest(name, list(names))
    return f"did you mean {close}?" if close else None


def wiring_errors(spec: PipelineSpec, stages: Mapping[str, Stage]) -> list[Diagnostic]:
    """Every name that means nothing, every required port left open, every cycle and every part that is not used."""
    found = []
    for stage_spec in spec.stages.values():
        found += use_errors(stage_spec, stages)
        for edge in stage_spec.edges:
            found += source_errors(spec, stages, edge.source, edge.source_mark)
    for output in spec.outputs.values():
        found += source_errors(spec, stages, output.source, output.source_mark)
    if not found:
        found += cycle_errors(spec)
    if not found:
        found += unused_errors(spec)
    return found


def use_errors(stage_spec: StageSpec, stages: Mapping[str, Stage]) -> list[Diagnostic]:
    stage = stages.get(stage_spec.use)
    if stage is None:
        help = did_you_mean(stage_spec.use, stages) or "`chunkwise list` names every stage; --stages DIR adds your own"
        return [Diagnostic(codes.UNKNOWN_STAGE, f"there is no stage {stage_spec.use}", stage_spec.use_mark, help=help)]
    contract, found, bound = stage.contract, [], {edge.port for edge in stage_spec.edges}
    for edge in stage_spec.edges:
        if edge.port not in contract.inputs:
            help = did_you_mean(edge.port, contract.inputs) or f"its inputs are {', '.join(contract.inputs)}"
            message = f"{stage.name} has no input {edge.port}"
            found.append(Diagnostic(codes.UNKNOWN_PORT, message, edge.port_mark, help=help))
    for name, port in contract.inputs.items():
        if name not in bound and not port.optional:
            message = f"{stage_spec.id} does not bind {name}, which {stage.name} requires"
            found.append(Diagnostic(codes.MISSING_INPUT, message, stage_spec.mark, help=f"add {name}: SOURCE under in"))
    for name, written in stage_spec.params.items():
        if name not in contract.params:
            help = did_you_mean(name, contract.params) or (
                f"its parameters are {', '.join(contract.params)}" if contract.params else "it takes none"
            )
            message = f"{stage.name} has no parameter {name}"
            found.append(Diagnostic(codes.UNKNOWN_PARAM, message, written.mark, help=help))
    for name, default in contract.params.items():
        if default is None and name not in stage_spec.params:
            message = f"{stage_spec.id} does not bind the parameter {name} of {stage.name}"
            found.append(Diagnostic(codes.MISSING_PARAM, message, stage_spec.mark, help=f"add with: {{{name}: ...}}"))
    return found


def source_errors(spec: PipelineSpec, stages: Mapping[str, Stage], source: str, mark) -> list[Diagnostic]:
    """What is wrong with ``stage.port`` or ``input`` as the source of an edge or output."""
    if source in spec.inputs:
        return []
    stage_id, _, port = source.partition(".")
    if not port:
        help = did_you_mean(source, [*spec.inputs, *spec.stages]) or "an edge comes from an input or from STAGE.PORT"
        if source in spec.stages and spec.stages[source].use in stages:
            outputs = stages[spec.stages[source].use].contract.outputs
            help = f"{source} is a stage: write {' or '.join(f'{source}.{name}' for name in outputs)}"
        return [Diagnostic(codes.UNKNOWN_SOURCE, f"there is no input {source}", mark, help=help)]
    if stage_id not in spec.stages:
        help = did_you_mean(stage_id, spec.stages)
        return [Diagnostic(codes.UNKNOWN_SOURCE, f"there is no stage entry {stage_id}", mark, help=help)]
    stage = stages.get(spec.stages[stage_id].use)
    if stage is not None and port not in stage.contract.outputs:
        help = did_you_mean(port, stage.contract.outputs) or f"its outputs are {', '.join(stage.contract.outputs)}"
        message = f"{stage_id} ({stage.name}) has no output {port}"
        return [Diagnostic(codes.UNKNOWN_PORT, message, mark, help=help)]
    return []


def dependencies(spec: PipelineSpec) -> nx.DiGraph:
    """Stage entries and the edges between them, in file order."""
    graph = nx.DiGraph()
    graph.add_nodes_from(spec.stages)
    for stage_spec in spec.stages.values():
        for edge in stage_spec.edges:
            producer = edge.source.partition(".")[0]
            if edge.source not in spec.inputs and producer in spec.stages:
                graph.add_edge(producer, stage_spec.id, edge=edge)
    return graph


def cycle_errors(spec: PipelineSpec) -> list[Diagnostic]:
    graph = dependencies(spec)
    try:
        cycle = nx.find_cycle(graph)
    except nx.NetworkXNoCycle:
        return []
    path = " -> ".join([cycle[0][0], *(consumer for _, consumer in cycle)])
    edges: list[EdgeSpec] = [graph.edges[pair[:2]]["edge"] for pair in cycle]
    notes = tuple(Note(f"{edge.source} feeds {pair[1]} here", edge.source_mark) for edge, pair in zip(edges, cycle))
    return [Diagnostic(codes.CYCLE, f"the stages form a cycle: {path}", edges[-1].source_mark, notes[:-1])]


def run_order(spec: PipelineSpec) -> list[str]:
    """Topological order; where edges leave it open, the file's order decides."""
    place = {name: index for index, name in enumerate(spec.stages)}
    return list(nx.lexicographical_topological_sort(dependencies(spec), key=place.__getitem__))


def unused_errors(spec: PipelineSpec) -> list[Diagnostic]:
    """Stages that reach no output, and inputs that nothing reads."""
    graph = dependencies(spec)
    used = {output.source.partition(".")[0] for output in spec.outputs.values()}
    used |= {before for stage_id in used & set(graph) for before in nx.ancestors(graph, stage_id)}
    found = [
        Diagnostic(codes.UNUSED_STAGE, f"no output depends on {stage.id}", stage.mark, help="remove it, or name it in outputs")
        for stage in spec.stages.values()
        if stage.id not in used
    ]
    read = {edge.source for stage in spec.stages.values() for edge in stage.edges}
    read |= {output.source for output in spec.outputs.values()}
    found += [
        Diagnostic(codes.UNUSED_INPUT, f"no stage reads the input {entry.name}", entry.mark, help="remove it, or bind it")
        for entry in spec.inputs.values()
        if entry.name not in read
    ]
    return found
