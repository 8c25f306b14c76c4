"""What a stage replaces, as a graph: the ``pattern`` of its file, with the stage's own ports as the boundary."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations

from ...stages._contract import Contract
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.build_graph import build_graph
from ..graphs.graph import Graph
from ..loading.load_spec import parse_spec
from ..loading.spec import PipelineSpec
from ..stage_files.stage_library import Stage


def pattern_graphs(stage: Stage, stages: Mapping[str, Stage]) -> Iterator[Graph]:
    """The pattern once with every input present, then with ever more of its optional inputs absent.

    None where a stage that it names is not among the stages. Raises ChunkwiseError when it does not fit together.
    """
    if not {entry.use for entry in pattern_spec(stage, frozenset()).stages.values()} <= stages.keys():
        return
    optional = [name for name, port in stage.contract.inputs.items() if port.optional]
    for count in range(len(optional) + 1):
        for absent in combinations(optional, count):
            yield pattern_graph(stage, Stages(stages), frozenset(absent))


class Stages(dict):
    """Stages as a key of a cache: the same names and files are the same stages."""

    def __hash__(self):
        return hash(frozenset(self))


@cache
def pattern_graph(stage: Stage, stages: "Stages", absent: frozenset[str]) -> Graph:
    try:
        return build_graph(pattern_spec(stage, absent), stages, absent)
    except ChunkwiseError as error:
        first = error.diagnostics[0]
        message = f"the pattern of stage {stage.name} does not fit together: {first.message}"
        raise ChunkwiseError(Diagnostic(codes.STAGE_CONTRACT, message, first.mark, help=first.help)) from None


@cache
def pattern_spec(stage: Stage, absent: frozenset[str]) -> PipelineSpec:
    """The pattern as a pipeline: inputs and params are those of the stage that replaces it; a unit that depends on
    which of them are there is that of these."""
    contract = stage.contract
    params = {name: "1" for name in contract.params}
    head = ["schema: pipeline/v1", f"name: {stage.name.replace('.', '_')}", "axes: {C: 64}", "inputs:"]
    head += [f"  {name}: {written(name, contract, absent)}" for name in contract.inputs]
    head += ["params:", *(f"  {name}: {value}" for name, value in params.items())] if params else []
    return parse_spec("\n".join(head) + stage.pattern, f"{stage.file}, pattern")


def written(name: str, contract: Contract, absent: frozenset[str]) -> str:
    port = contract.inputs[name]
    parts, unit = [f"shape: {port.shape}", f"dtype: {port.dtype}"], port.unit
    for variable, (decides, there, missing) in contract.presence.items():
        unit = unit and unit.replace("{" + variable + "}", missing if decides in absent else there)
    parts += [f"unit: {unit}"] if unit else []
    parts += [f'where: "{port.where}"'] if port.where else []
    parts += ["optional: true"] if port.optional else []
    return "{" + ", ".join(parts) + "}"
