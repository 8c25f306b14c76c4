"""A spec with something changed from outside the file: fixed axes, or an earlier end."""

from collections.abc import Mapping
from dataclasses import replace

import networkx as nx

from . import codes
from .errors import ChunkwiseError, Diagnostic
from .spec import OutputSpec, PipelineSpec
from .wire import dependencies, did_you_mean


def with_axes(spec: PipelineSpec, sizes: Mapping[str, int]) -> PipelineSpec:
    axes = {name: replace(written, value=sizes.get(name, written.value)) for name, written in spec.axes.items()}
    return replace(spec, axes=axes)


def until(spec: PipelineSpec, stages: Mapping, stage: str) -> PipelineSpec:
    """What the outputs of one stage need; the definition, which speaks of the whole op, falls away."""
    if stage not in spec.stages:
        help = did_you_mean(stage, spec.stages) or f"its stages are {', '.join(spec.stages)}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"--until: {spec.name} has no stage {stage}", help=help))
    used = nx.ancestors(dependencies(spec), stage) | {stage}
    kept = {name: entry for name, entry in spec.stages.items() if name in used}
    read = {edge.source for entry in kept.values() for edge in entry.edges}
    entry = spec.stages[stage]
    outputs = {
        port: OutputSpec(port, entry.mark, f"{stage}.{port}", entry.mark) for port in stages[entry.use].contract.outputs
    }
    inputs = {name: each for name, each in spec.inputs.items() if name in read}
    return replace(spec, stages=kept, inputs=inputs, outputs=outputs, definition=None)
