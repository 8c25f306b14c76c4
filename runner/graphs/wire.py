"""Names resolved: which stage, port and source each edge means, and an order in which the stages can run."""

from collections.abc import Mapping

import networkx as nx

from ...stages._contract import Port
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic, Note, Replace
from ..diagnostics.hints import meant, nearest
from ..loading.spec import EdgeSpec, PipelineSpec, StageSpec
from ..stage_files.stage_library import Stage


def did_you_mean(name: str, names) -> str | None:
    close = nearest(name, list(names))
    return f"did you mean {close}?" if close else None


def slip(mark, name: str, names) -> Replace | None:
    """The repair of a misspelt name that can mean one of names alone."""
    right = meant(name, names)
    return Replace(mark, name, right) if right else None


def wiring_errors(spec: PipelineSpec, stages: Mapping[str, Stage]) -> tuple[list[Diagnostic], set[str]]:
    """Every name that means nothing, every required port left open, every cycle and every part that is not used;
    and the stage entries of which an edge means nothing, so that what they give is not known."""
    found, broken = [], set()
    for entry in spec.stages.values():
        wrong = use_errors(spec, entry, stages)
        for edge in entry.edges:
            wrong += source_errors(spec, stages, edge.source, edge.source_mark)
        found += wrong
        # a parameter that is wrong leaves the types of the edges as they are
        broken |= {entry.id} if {each.code for each in wrong} - {codes.UNKNOWN_PARAM, codes.MISSING_PARAM} else set()
    for output in spec.outputs.values():
        found += source_errors(spec, stages, output.source, output.source_mark)
    loops = cycle_errors(spec)
    broken |= in_or_after_cycles(dependencies(spec))
    if not found and not loops:
        found += unused_errors(spec)
    return found + loops, broken


def written_stages(spec: PipelineSpec) -> list[str]:
    """The entries that the file has under ``stages``: without the expressions in edges."""
    return [name for name, entry in spec.stages.items() if entry.formula is None]


def use_errors(spec: PipelineSpec, stage_spec: StageSpec, stages: Mapping[str, Stage]) -> list[Diagnostic]:
    if stage_spec.formula:
        return []
    stage = stages.get(stage_spec.use)
    if stage is None:
        help = did_you_mean(stage_spec.use, stages) or "`chunkwise list` names every stage; --stages DIR adds your own"
        message, mark = f"there is no stage {stage_spec.use}", stage_spec.use_mark
        repair = slip(mark, stage_spec.use, stages)
        return [Diagnostic(codes.UNKNOWN_STAGE, message, mark, help=help, repair=repair)]
    contract, found, bound = stage.contract, [], {edge.port for edge in stage_spec.edges}
    for edge in stage_spec.edges:
        if edge.port not in contract.inputs:
            # a slip of the pen is one mistake, not a port too many and another one left open
            free = [name for name in contract.inputs if name not in bound]
            near = nearest(edge.port, free)
            bound |= {near} if near else set()
            help = f"did you mean {near}?" if near else f"its inputs are {', '.join(contract.inputs)}"
            message, repair = f"{stage.name} has no input {edge.port}", slip(edge.port_mark, edge.port, free)
            found.append(Diagnostic(codes.UNKNOWN_PORT, message, edge.port_mark, help=help, repair=repair))
    for name, port in contract.inputs.items():
        if name not in bound and not port.optional:
            message = f"{stage_spec.id} does not bind {name}, which {stage.name} requires"
            help = f"add {name}: {sources_of(spec, stages, port) or 'SOURCE'} to in; it takes {words(port)}"
            found.append(Diagnostic(codes.MISSING_INPUT, message, stage_spec.mark, help=help))
    given = set(stage_spec.params)
    for name, written in stage_spec.params.items():
        if name not in contract.params:
            free = [each for each in contract.params if each not in given]
            near = nearest(name, free)
            given |= {near} if near else set()
            known = f"its parameters are {', '.join(contract.params)}" if contract.params else "it takes none"
            help = f"did you mean {near}?" if near else known
            message, repair = f"{stage.name} has no parameter {name}", slip(written.key_mark, name, free)
            found.append(Diagnostic(codes.UNKNOWN_PARAM, message, written.key_mark, help=help, repair=repair))
    for name, default in contract.params.items():
        if default is None and name not in given:
            message = f"{stage_spec.id} does not bind the parameter {name} of {stage.name}"
            found.append(Diagnostic(codes.MISSING_PARAM, message, stage_spec.mark, help=f"add with: {{{name}: ...}}"))
    return found


def words(port: Port) -> str:
    return f"[{port.shape}]" + (f" {port.unit}" if port.unit else "")


def sources_of(spec: PipelineSpec, stages: Mapping[str, Stage], port: Port) -> str:
    """The inputs and outputs that carry the port's unit, if it has one."""
    inputs = [entry.name for entry in spec.inputs.values() if entry.unit == port.unit]
    outputs = [
        f"{entry.id}.{name}"
        for entry in spec.stages.values()
        if entry.use in stages
        for name, output in stages[entry.use].contract.outputs.items()
        if output.unit == port.unit
    ]
    return " or ".join(inputs + outputs) if port.unit else ""


def source_errors(spec: PipelineSpec, stages: Mapping[str, Stage], source: str, mark) -> list[Diagnostic]:
    """What is wrong with ``stage.port`` or ``input`` as the source of an edge or output."""
    if source in spec.inputs:
        return []
    stage_id, _, port = source.partition(".")
    if not port:
        return [unknown_input(spec, stages, source, mark)]
    if stage_id not in spec.stages:
        written = written_stages(spec)
        help = did_you_mean(stage_id, written) or f"the entries of stages are {', '.join(written)}"
        right = meant(stage_id, written)
        repair = Replace(mark, source, f"{right}.{port}") if right else None
        message = f"there is no stage entry {stage_id}"
        return [Diagnostic(codes.UNKNOWN_SOURCE, message, mark, help=help, repair=repair)]
    stage = stages.get(spec.stages[stage_id].use)
    if stage is not None and port not in stage.contract.outputs:
        help = did_you_mean(port, stage.contract.outputs) or f"its outputs are {', '.join(stage.contract.outputs)}"
        message, right = f"{stage_id} ({stage.name}) has no output {port}", meant(port, stage.contract.outputs)
        repair = Replace(mark, source, f"{stage_id}.{right}") if right else None
        return [Diagnostic(codes.UNKNOWN_PORT, message, mark, help=help, repair=repair)]
    return []


def unknown_input(spec: PipelineSpec, stages: Mapping[str, Stage], source: str, mark) -> Diagnostic:
    """A source without a port that is no input: a stage entry that lacks its port, or a name that is misspelt."""
    help = (
        did_you_mean(source, [*spec.inputs, *written_stages(spec)]) or "an edge comes from an input or from STAGE.PORT"
    )
    repair = slip(mark, source, spec.inputs)
    if source in spec.stages and spec.stages[source].use in stages:
        outputs = [f"{source}.{name}" for name in stages[spec.stages[source].use].contract.outputs]
        help = f"{source} is a stage: write {' or '.join(outputs)}"
        repair = Replace(mark, source, outputs[0]) if len(outputs) == 1 else None
    return Diagnostic(codes.UNKNOWN_SOURCE, f"there is no input {source}", mark, help=help, repair=repair)


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
    """One error for each knot of stages that feed each other: a shortest way to see that there is no first one."""
    graph, place = dependencies(spec), {name: index for index, name in enumerate(spec.stages)}
    found = []
    for knot in nx.strongly_connected_components(graph):
        first = min(knot, key=place.__getitem__)
        if len(knot) > 1 or graph.has_edge(first, first):
            found.append(cycle_error(graph, shortest_cycle(graph.subgraph(knot), first)))
    return found


def shortest_cycle(graph: nx.DiGraph, start: str) -> list[str]:
    """From start back to start, both ends included."""
    ways = [nx.shortest_path(graph, consumer, start) for consumer in graph.successors(start)]
    return [start, *min(ways, key=len)]


def cycle_error(graph: nx.DiGraph, cycle: list[str]) -> Diagnostic:
    edges: list[EdgeSpec] = [graph.edges[pair]["edge"] for pair in zip(cycle, cycle[1:])]
    notes = tuple(
        Note(f"{edge.source} feeds {consumer} here", edge.source_mark) for edge, consumer in zip(edges, cycle[1:-1])
    )
    label = (
        f"{edges[-1].source} feeds {cycle[-1]} here, which closes the cycle"
        if notes
        else "a stage cannot read its own output"
    )
    return Diagnostic(
        codes.CYCLE, f"the stages form a cycle: {' -> '.join(cycle)}", edges[-1].source_mark, notes, label=label
    )


def in_or_after_cycles(graph: nx.DiGraph) -> set[str]:
    """Stage entries that wait for each other, and those that wait for them."""
    knots = [knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1]
    inside = set().union(*knots) | set(nx.nodes_with_selfloops(graph))
    return inside.union(*(nx.descendants(graph, name) for name in inside))


def run_order(spec: PipelineSpec) -> list[str]:
    """Topological order; where edges leave it open, the file's order decides. What no order fits stands at the end."""
    graph, place = dependencies(spec), {name: index for index, name in enumerate(spec.stages)}
    stuck = in_or_after_cycles(graph)
    order = nx.lexicographical_topological_sort(graph.subgraph(set(graph) - stuck), key=place.__getitem__)
    return [*order, *(name for name in spec.stages if name in stuck)]


def unused_errors(spec: PipelineSpec) -> list[Diagnostic]:
    """Stages that reach no output, and inputs that nothing reads."""
    graph = dependencies(spec)
    used = {output.source.partition(".")[0] for output in spec.outputs.values()}
    used |= {before for stage_id in used & set(graph) for before in nx.ancestors(graph, stage_id)}
    found = [
        Diagnostic(
            codes.UNUSED_STAGE, f"no output depends on {stage.id}", stage.mark, help="remove it, or name it in outputs"
        )
        for stage in spec.stages.values()
        if stage.id not in used and not stage.formula
    ]
    read = {edge.source for stage in spec.stages.values() for edge in stage.edges}
    read |= {output.source for output in spec.outputs.values()}
    found += [
        Diagnostic(
            codes.UNUSED_INPUT, f"no stage reads the input {entry.name}", entry.mark, help="remove it, or bind it"
        )
        for entry in spec.inputs.values()
        if entry.name not in read
    ]
    return found
