"""What a stage's GRADIENT stands for: the backward pass of the stages in its GRADIENT_OF, as graphs.

GRADIENT_OF is a pipeline: inputs, params, stages, outputs. GRADIENT has the stages that its backward pass can be
instead. They read the pipeline's inputs, what its stages make (``solve.Ai``), and ``d_<output>``; their outputs are
``d_<input>``.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations

from ..backward.derive import derive
from ..backward.gradient_stages import with_gradient_stages
from ..backward.vjp_stage import HEAD, cotangent_dtype
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.build_graph import build_graph
from ..graphs.graph import Graph, Value
from ..loading.load_spec import parse_spec
from ..loading.spec import InputSpec, PipelineSpec, StageSpec
from ..stage_files.stage_library import Stage
from .pattern import Stages


def absences(stage: Stage) -> Iterator[frozenset[str]]:
    """With every input of the pattern there, then with ever more of its optional ones absent."""
    optional = [name for name, entry in gradient_of(stage).inputs.items() if entry.optional]
    for count in range(len(optional) + 1):
        yield from map(frozenset, combinations(optional, count))


@cache
def gradient_of(stage: Stage) -> PipelineSpec:
    """The stages whose backward pass it stands for, as a pipeline."""
    head = f"schema: pipeline/v1\nname: {stage.name}\naxes: {{C: 64}}"
    return parse_spec(head + stage.gradient_of, f"{stage.file}, GRADIENT_OF")


@cache
def gradient_stages(stage: Stage) -> PipelineSpec:
    return parse_spec(HEAD + stage.gradient_stages, f"{stage.file}, GRADIENT")


def gradient_uses(stage: Stage) -> set[str]:
    """The names of the stages that make the gradient, where there is such a pattern."""
    return {entry.use for entry in gradient_stages(stage).stages.values()} if stage.gradient_of else set()


@cache
def forward_pattern(stage: Stage, stages: Stages, absent: frozenset[str]) -> Graph:
    return built(stage, gradient_of(stage), stages, absent)


@cache
def derived(
    stage: Stage, stages: Stages, absent: frozenset[str], wanted: Collection[str], cotangents: Collection[str]
) -> Graph:
    """The pattern with its backward pass, all that it reads kept."""
    forward = forward_pattern(stage, stages, absent)
    return with_gradient_stages(derive(forward, wanted, cotangents, recompute=()), stages)


@cache
def replacement(stage: Stage, stages: Stages, absent: frozenset[str], cotangents: Collection[str]) -> Graph:
    """The pattern's stages, and after them those that make the gradients out of what they make."""
    forward, spec, gradient = forward_pattern(stage, stages, absent), gradient_of(stage), gradient_stages(stage)
    incoming = {
        f"d_{name}": cotangent_input(f"d_{name}", forward.values[value], spec)
        for name, value in forward.outputs.items()
    }
    missing = {f"d_{name}" for name in forward.outputs if name not in cotangents}
    made = {**read_by(gradient, spec), **gradient.stages}
    whole = replace(spec, inputs={**spec.inputs, **incoming}, stages=made, outputs=gradient.outputs)
    return built(stage, whole, stages, absent | missing)


def read_by(gradient: PipelineSpec, spec: PipelineSpec) -> dict[str, StageSpec]:
    """The pattern's stages whose values the gradient's stages depend on."""
    found, left = {}, list(gradient.stages.values())
    while left:
        makers = {edge.source.partition(".")[0] for edge in left.pop().edges}
        new = [entry for id, entry in spec.stages.items() if id in makers and id not in found]
        found |= {entry.id: entry for entry in new}
        left += new
    return {id: entry for id, entry in spec.stages.items() if id in found}


def cotangent_input(name: str, value: Value, spec: PipelineSpec) -> InputSpec:
    unit = f"cotangent/{value.unit}" if value.unit else None
    shape, dtype = tuple(map(str, value.axes)), cotangent_dtype(value.dtype, value.axes)
    return InputSpec(name, spec.mark, shape, spec.mark, dtype, unit=unit, optional=True)


def built(stage: Stage, spec: PipelineSpec, stages: Mapping[str, Stage], absent: frozenset[str]) -> Graph:
    try:
        return build_graph(spec, stages, absent)
    except ChunkwiseError as error:
        first = error.diagnostics[0]
        message = f"the gradient pattern of stage {stage.name} does not fit together: {first.message}"
        raise ChunkwiseError(Diagnostic(codes.STAGE_CONTRACT, message, first.mark, help=first.help)) from None
