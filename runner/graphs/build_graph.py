"""From a spec and the stages to a graph: wiring first, then the types of every edge, all errors in one run."""

from collections.abc import Mapping

from ...stages import _laws
from ...stages._contract import Port
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, by_place
from ..loading.check_expressions import expression_errors
from ..loading.check_laws import law_errors
from ..loading.extend import seen_through
from ..loading.spec import InputSpec, PipelineSpec, StageSpec
from ..maps.formula import Formula
from ..stage_files.stage_library import Stage
from ..verification.oracle import definition_errors, output_axes_errors
from .graph import Graph, Node, Term, Value
from .map_node import map_node_stage
from .mutation import mutation_errors
from .sizes import complete, known_parameters, size_errors
from .unify import GLOBAL_AXES, Bindings, match_stage, output_value
from .wire import run_order, wiring_errors


def build_graph(spec: PipelineSpec, stages: Mapping[str, Stage], absent: frozenset[str] = frozenset()) -> Graph:
    """The graph for one pattern of absent optional inputs. Raises ChunkwiseError with every diagnostic."""
    found, broken = wiring_errors(spec, stages)
    found += expression_errors(spec) + law_errors(spec)
    builder = Builder(spec, stages, absent, broken)
    for stage_id in run_order(spec):
        builder.add(spec.stages[stage_id])
    found += builder.found
    graph = builder.graph()
    found = found or mutation_errors(graph)
    if found:
        raise ChunkwiseError(*by_place(found))
    return graph


def check_graphs(spec: PipelineSpec, stages: Mapping[str, Stage]) -> Graph:
    """Build the graph with everything present, with each optional input absent, and with all absent.

    Returns the first of them. A pipeline that only fits together when an input is given is refused here, not at a
    user's call; so is a definition that does not fit, and what the file's fixed axes break whatever the other sizes.
    """
    optional = [entry.name for entry in spec.inputs.values() if entry.optional]
    patterns = dict.fromkeys([frozenset(), *(frozenset([name]) for name in optional), frozenset(optional)])
    graphs, found = [], definition_errors(spec)
    for pattern in patterns:
        try:
            graphs.append(build_graph(spec, stages, pattern))
        except ChunkwiseError as error:
            found += error.diagnostics
    if not found:
        fixed = complete(graphs[0], {})
        found = size_errors(graphs[0], fixed) + known_parameters(graphs[0], fixed, {})[1]
        found += output_axes_errors(graphs[0])
    if found:
        raise ChunkwiseError(*by_place(seen_through(spec.bases, found)))
    return graphs[0]


def input_value(entry: InputSpec, fixed: Mapping) -> Value:
    axes = tuple(term(axis) for axis in entry.shape)
    laws = tuple(_laws.parse(written.value) for written in entry.where)
    written = {"shape": entry.shape_mark, "dtype": entry.dtype_mark, "unit": entry.unit_mark}
    written["where"] = entry.where[0].mark if entry.where else None
    return Value(entry.name, axes, entry.dtype, entry.unit, laws, None, entry.name, entry.mark, written)


def term(axis: str) -> Term:
    return int(axis) if str(axis).isdigit() else axis


class Builder:
    """Adds stage entries in running order and keeps what they fix."""

    def __init__(self, spec: PipelineSpec, stages: Mapping[str, Stage], absent: frozenset[str], broken: set[str]):
        self.spec, self.stages, self.absent, self.found = spec, stages, absent, []
        self.inputs = {name: input_value(entry, spec.axes) for name, entry in spec.inputs.items()}
        self.values: dict[str, Value] = {n: v for n, v in self.inputs.items() if n not in absent}
        self.nodes: dict[str, Node] = {}
        self.maps: dict[tuple, Value] = {}
        self.broken = set(broken)

    def add(self, entry: StageSpec) -> None:
        if entry.formula:
            return self.add_map(entry)
        stage = self.stages.get(entry.use)
        if stage is None:
            return
        sources = {edge.port: edge.source for edge in entry.edges}
        bound = {port: self.values.get(sources.get(port)) for port in stage.contract.inputs}
        unknown = {port for port, source in sources.items() if self.is_unknown(source)}
        if sources.keys() - stage.contract.inputs:
            # a port that is misspelt leaves another one open, of which nothing is known
            unknown |= stage.contract.inputs.keys() - sources.keys()
        if entry.id in self.broken or unknown:
            self.broken.add(entry.id)
            self.found += match_stage(entry, stage, bound, unknown, self.spec.stages, self.stages)[1]
            return
        if any(value is None and not stage.contract.inputs[port].optional for port, value in bound.items()):
            return
        bindings, found = match_stage(entry, stage, bound, unknown, self.spec.stages, self.stages)
        outputs = {}
        for name in stage.contract.outputs:
            outputs[name], problems = output_value(entry, stage, name, bindings, self.spec.axes)
            found += problems if not found else []
        found += self.chunk_length_errors(entry, stage, bindings)
        if found:
            self.found += found
            self.broken.add(entry.id)
            return
        self.values.update({value.name: value for value in outputs.values()})
        self.nodes[entry.id] = node_of(entry, stage, bound, outputs, bindings)

    def is_unknown(self, source: str) -> bool:
        """Whether a source has no type because something is wrong with it, not because it is absent."""
        head, _, port = source.partition(".")
        entry = self.spec.stages.get(head)
        if source in self.spec.inputs:
            return False
        if entry is None or not port or head in self.broken:
            return True
        return not entry.formula and port not in self.stages[entry.use].contract.outputs

    def add_map(self, entry: StageSpec) -> None:
        """An expression in an edge. One that reads the same values into the same type is there once."""
        if any(self.is_unknown(edge.source) for edge in entry.edges):
            self.broken.add(entry.id)
            return
        bound = {edge.port: self.values.get(edge.source) for edge in entry.edges}
        if None in bound.values():
            return
        stage, found = map_node_stage(entry, bound, self.reading_port(entry.formula))
        if found:
            self.found += found
            self.broken.add(entry.id)
            return
        port = stage.contract.outputs["y"]
        inputs = {name: value.name for name, value in bound.items()}
        key = entry.formula.term, port, *inputs.items(), *entry.formula.scalars.items()
        if key not in self.maps:
            laws = (_laws.parse(port.where),) if port.where else ()
            axes = tuple(map(term, port.axes))
            self.maps[key] = Value(f"{entry.id}.y", axes, port.dtype, port.unit, laws, entry.id, "y", entry.mark)
            self.nodes[entry.id] = map_node(entry, stage, inputs, self.nodes)
        self.values[f"{entry.id}.y"] = self.maps[key]

    def reading_port(self, formula: Formula) -> Port | None:
        reader = self.spec.stages.get(formula.reader)
        stage = self.stages.get(reader.use) if reader else None
        return stage.contract.inputs.get(formula.port) if stage else None

    def chunk_length_errors(self, entry: StageSpec, stage: Stage, bindings: Bindings) -> list[Diagnostic]:
        if "C" not in stage.axis_names or bindings.axes.get("C", "C") != "C" or "C" in self.spec.axes:
            return []
        message = f"{entry.id} ({stage.name}) works in chunks, and the pipeline gives no chunk length C"
        return [Diagnostic(codes.AXIS_SIZE, message, entry.use_mark, help="add axes: {C: 64}")]

    def graph(self) -> Graph:
        values = {value.name: value for value in self.values.values()}
        outputs = {
            output.name: self.values[output.source].name if output.source in self.values else None
            for output in self.spec.outputs.values()
        }
        return Graph(self.spec, self.absent, self.inputs, values, self.nodes, outputs)


def map_node(entry: StageSpec, stage: Stage, inputs: Mapping[str, str], nodes: Mapping[str, Node]) -> Node:
    """Rebuilt for backward where that keeps nothing more: where all that it reads is the call's, or rebuilt too."""
    makers = [nodes.get(name.partition(".")[0]) for name in inputs.values()]
    recompute = all(maker is None or ":" in maker.id and maker.recompute for maker in makers)
    axes, outputs = {axis: axis for axis in stage.axis_names}, {"y": f"{entry.id}.y"}
    return Node(entry.id, stage, inputs, outputs, axes, entry.formula.scalars, entry.mark, recompute=recompute)


def node_of(entry: StageSpec, stage: Stage, bound, outputs, bindings: Bindings) -> Node:
    axes = {
        axis: bindings.axes.get(axis, axis) for axis in stage.axis_names if axis in bindings.axes or axis in GLOBAL_AXES
    }
    params = {name: default for name, default in stage.contract.params.items() if default is not None}
    params.update({name: written.value for name, written in entry.params.items()})
    return Node(
        id=entry.id,
        stage=stage,
        inputs={port: value.name if value else None for port, value in bound.items()},
        outputs={port: value.name for port, value in outputs.items()},
        axes=axes,
        params=params,
        mark=entry.mark,
        recompute=entry.recompute,
        bound_by=dict(bindings.axis_edges),
        units=dict(bindings.variables),
        units_by=dict(bindings.variable_edges),
        edge_marks={edge.port: edge.source_mark for edge in entry.edges},
    )
