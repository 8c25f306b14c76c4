"""A spec with something changed from outside the file: fixed axes, an earlier end, or a later beginning."""

import re
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral

import networkx as nx

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.marks import Mark
from ..expression import names_in, parse_expression
from ..graphs.graph import Graph, Value
from ..graphs.wire import dependencies, did_you_mean, written_stages
from .check_expressions import axis_names
from .check_laws import axes_of_rows
from .spec import InputSpec, OutputSpec, PipelineSpec, StageSpec, Written
from .spec_keys import ARGUMENT, LARGEST, SIZE


def with_axes(spec: PipelineSpec, sizes: Mapping[str, int]) -> PipelineSpec:
    if not isinstance(sizes, Mapping):
        message = f"sizes of axes are given by name, not as {type(sizes).__name__}"
        raise ChunkwiseError(Diagnostic(codes.BAD_AXES, message, help='op.with_axes({"C": 32})'))
    for name, size in sizes.items():
        if name not in spec.axes:
            help = did_you_mean(str(name), spec.axes) or f"those that it fixes: {', '.join(spec.axes) or 'none'}"
            raise ChunkwiseError(Diagnostic(codes.BAD_AXES, f"{spec.name} fixes no axis {name}", help=help))
        if isinstance(size, bool) or not isinstance(size, Integral) or not 1 <= size <= LARGEST:
            message = f"{name} = {size!r:.40}: the size of an axis is {SIZE.words}"
            raise ChunkwiseError(Diagnostic(codes.BAD_AXES, message, spec.axes[name].mark))
    axes = {
        name: replace(written, value=int(sizes[name]), least=None) if name in sizes else written
        for name, written in spec.axes.items()
    }
    return replace(spec, axes=axes)


def until(spec: PipelineSpec, stages: Mapping, stage: str) -> PipelineSpec:
    """What the outputs of one stage need; the definition, which speaks of the whole op, falls away."""
    check_stage(spec, stage)
    used = nx.ancestors(dependencies(spec), stage) | {stage}
    kept = {name: entry for name, entry in spec.stages.items() if name in used}
    read = {edge.source for entry in kept.values() for edge in entry.edges}
    entry = spec.stages[stage]
    outputs = {
        port: OutputSpec(port, entry.mark, f"{stage}.{port}", entry.mark) for port in stages[entry.use].contract.outputs
    }
    inputs = {name: each for name, each in spec.inputs.items() if name in read}
    part = replace(spec, stages=kept, inputs=inputs, outputs=outputs, definition=None)
    part = replace(part, params=params_of(spec, kept))
    return of_its_axes(replace(part, axes=fixed_axes_of(part, stages)))


def of_its_axes(part: PipelineSpec) -> PipelineSpec:
    """A part without the constraints and laws that speak of axes which none of its inputs has."""
    axes = axis_names(part)
    inputs = {
        name: replace(entry, where=tuple(law for law in entry.where if axes_of_rows(law) <= axes))
        for name, entry in part.inputs.items()
    }
    return replace(part, inputs=inputs, constraints=tuple(each for each in part.constraints if names_of(each) <= axes))


def check_stage(spec: PipelineSpec, stage) -> None:
    if not isinstance(stage, str) or stage not in spec.stages or spec.stages[stage].formula:
        written = written_stages(spec)
        help = did_you_mean(str(stage), written) or f"its stages are {', '.join(written)}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{spec.name} has no stage {stage}", help=help))


def fixed_axes_of(part: PipelineSpec, stages: Mapping) -> dict[str, Written]:
    """The fixed axes that the inputs, stages or params of a part have."""
    used = {axis for entry in part.inputs.values() for axis in entry.shape}
    used |= {axis for entry in part.stages.values() if not entry.formula for axis in stages[entry.use].axis_names}
    numbers = [*part.params.values(), *(each for entry in part.stages.values() for each in entry.params.values())]
    used |= set().union(*map(names_of, numbers))
    return {name: written for name, written in part.axes.items() if name in used}


def with_given(spec: PipelineSpec, graph: Graph, names: Mapping[str, str]) -> PipelineSpec:
    """What stages with one output make becomes an input. names: stage -> the input's name. The definition, which begins
    at what those stages read, falls away, and so do inputs that nobody reads any more."""
    if not isinstance(names, Mapping):
        message = f"the inputs that stand for stages are given by name, not as {type(names).__name__}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help='op.given({"gate": "g"})'))
    check_given(spec, graph, names)
    sources = {next(iter(graph.nodes[stage].outputs.values())): name for stage, name in names.items()}
    kept = {stage: reading(entry, sources) for stage, entry in spec.stages.items() if stage not in names}
    read = {edge.source for entry in kept.values() for edge in entry.edges}
    inputs = {name: each for name, each in spec.inputs.items() if name in read}
    inputs |= {
        name: as_input(name, graph.values[source], spec.stages[source.partition(".")[0]].mark)
        for source, name in sources.items()
    }
    return of_its_axes(replace(spec, stages=kept, inputs=inputs, params=params_of(spec, kept), definition=None))


def check_given(spec: PipelineSpec, graph: Graph, names: Mapping[str, str]) -> None:
    """Raises ChunkwiseError: stages that are none or that no one input can stand for, and names that are not free."""
    found = []
    for stage, name in names.items():
        check_stage(spec, stage)
        makes = list(graph.nodes[stage].outputs)
        if len(makes) > 1:
            message = f"{stage} makes {' and '.join(makes)}, and one input cannot stand for them"
            found.append(Diagnostic(codes.USAGE, message, spec.stages[stage].mark))
        if not isinstance(name, str) or not re.fullmatch(ARGUMENT.pattern, name) or name in ARGUMENT.refused:
            message = f"{name!r:.80} cannot be the name of an input"
            found.append(Diagnostic(codes.USAGE, message, help=ARGUMENT.help))
    if found:
        raise ChunkwiseError(*found)
    kept = [entry for stage, entry in spec.stages.items() if stage not in names]
    read = {edge.source: entry.id for entry in reversed(kept) for edge in entry.edges if edge.source in spec.inputs}
    for at, (stage, name) in enumerate(names.items()):
        taken = f"{read[name]} reads an input of that name" if name in read else None
        taken = "a param has that name" if name in spec.params else taken
        taken = "it stands for two stages" if name in list(names.values())[:at] else taken
        if taken:
            message = f"{name} cannot stand for {stage}: {taken}"
            found.append(Diagnostic(codes.USAGE, message, spec.stages[stage].mark, help="choose another name"))
    if found:
        raise ChunkwiseError(*found)


def reading(entry: StageSpec, sources: Mapping[str, str]) -> StageSpec:
    """A stage whose edges read the inputs that stand for those sources."""
    edges = tuple(replace(edge, source=sources.get(edge.source, edge.source)) for edge in entry.edges)
    return replace(entry, edges=edges)


def as_input(name: str, value: Value, mark: Mark) -> InputSpec:
    """An input of a value's type."""
    laws = tuple(Written(law.text, mark) for law in value.laws)
    return InputSpec(name, mark, tuple(map(str, value.axes)), mark, value.dtype, mark, value.unit, mark, laws)


def params_of(spec: PipelineSpec, kept: Mapping[str, StageSpec]) -> dict[str, Written]:
    """The params that some stages read, and the params that those are made of."""
    read = set().union(*(names_of(written) for entry in kept.values() for written in entry.params.values()))
    for name, written in reversed(spec.params.items()):
        read |= names_of(written) if name in read else set()
    return {name: written for name, written in spec.params.items() if name in read}


def names_of(written: Written) -> set[str]:
    return set(names_in(parse_expression(written.value))) if isinstance(written.value, str) else set()
