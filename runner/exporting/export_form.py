"""What of a pipeline goes into an exported file: which graph, which inputs, which of them a call may leave out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...stages._contract import HELD
from ..calling.function import Op
from ..calling.read_arguments import wanted_outputs
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph, Node
from ..graphs.wire import did_you_mean
from ..loading.spec import PipelineSpec
from ..stage_files.stage_library import SHIPPED, SHIPPED_PACKAGE
from .export_maps import entry_of, map_sources


@dataclass(frozen=True)
class Form:
    """joint: the graph with its backward pass. inputs: in the order of the parameters; optional: those among them that
    a call may leave out. outputs: output -> value. packed: the function takes seqlens. modules: a stage's file ->
    (package, module). maps: an entry that is an expression in an edge -> its name in the file."""

    spec: PipelineSpec
    joint: Graph
    backend: str
    inputs: tuple[str, ...]
    optional: frozenset[str]
    outputs: Mapping[str, str]
    packed: bool
    modules: Mapping[str, tuple[str, str]]
    maps: Mapping[str, str]

    def launched(self, node: Node) -> bool:
        """Whether a node's kernels run, and not its reference."""
        return launched(node, self.backend)

    @property
    def any_kernel(self) -> bool:
        return any(map(self.launched, self.joint.nodes.values()))


def make_form(op: Op, backend: str, outputs: Sequence[str] | None, without: frozenset[str]) -> Form:
    """Raises ChunkwiseError for names that the op does not have, and for stages that the file could not import."""
    may_lack = [name for name, entry in op.spec.inputs.items() if entry.optional]
    for name in sorted(without - set(may_lack)):
        help = did_you_mean(name, may_lack) or f"optional are {', '.join(may_lack) or 'none of its inputs'}"
        refuse(f"{op.spec.name} has no optional input {name}", help)
    wanted = wanted_outputs(op.spec, outputs)
    given = {name: value for name, value in op.graph(without).outputs.items() if name in wanted}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        refuse(f"without {', '.join(sorted(without))} there is no {', '.join(missing)}", "name the outputs to export")
    joint = joint_graph(op, without, given)
    optional = left_open(op, joint, [name for name in may_lack if name not in without], given)
    inputs = sorted((name for name in joint.inputs if name not in without), key=lambda name: name in optional)
    maps = {id: id.replace(":", "_map_").replace("return_map", "output_map") for id in map_sources(joint)}
    modules = {node.stage.file: module_of(node) for node in joint.nodes.values() if entry_of(node) not in maps}
    packed = can_pack(joint, backend, given)
    return Form(op.spec, joint, backend, tuple(inputs), frozenset(optional), given, packed, modules, maps)


def refuse(message: str, help: str | None = None, mark=None):
    raise ChunkwiseError(Diagnostic(codes.USAGE, message, mark, help=help))


def joint_graph(op: Op, absent: frozenset[str], outputs: Collection[str]) -> Graph:
    """With the gradients of every input that has one."""
    graph = op.graph(absent)
    floats = [name for name, value in graph.inputs.items() if name not in absent and value.dtype not in HELD]
    flowing = [name for name in outputs if graph.values[graph.outputs[name]].dtype != "int"]
    trained = [name for name in floats if op.has_gradient(name, absent)]
    return op.joint_graph(absent, frozenset(trained), frozenset(flowing))


def left_open(op: Op, joint: Graph, names: Sequence[str], outputs: Collection[str]) -> set[str]:
    """The optional inputs without which the same stages run, with None in their place."""

    def same(absent: frozenset[str]) -> bool:
        gone = {*absent, *(joint.gradients[name] for name in absent if name in joint.gradients)}
        other = joint_graph(op, joint.absent | absent, outputs).nodes
        return list(other) == list(joint.nodes) and all(
            bound(node.inputs, gone) == bound(other[id].inputs, gone)
            and bound(node.outputs, gone) == bound(other[id].outputs, gone)
            for id, node in joint.nodes.items()
        )

    found = {name for name in names if same(frozenset([name]))}
    return found if same(frozenset(found)) else set()


def bound(ports: Mapping[str, str | None], gone: set[str]) -> dict[str, str]:
    return {port: name for port, name in ports.items() if name is not None and name not in gone}


def launched(node: Node, backend: str) -> bool:
    return backend == "triton" and bool(node.stage.launchers)


def can_pack(joint: Graph, backend: str, outputs: Mapping[str, str]) -> bool:
    """Kernels take packed sequences as they are; references would have to be mapped over them."""
    leaving = [joint.values[name].axes for name in (*outputs.values(), *joint.gradients.values())]
    rows_second = all("NT" not in axes and ("T" not in axes or axes[1:2] == ("T",)) for axes in leaving)
    by_kernels = all(launched(each, backend) for each in joint.nodes.values())
    return rows_second and by_kernels and {"B", "T"} <= set(joint.axis_names)


def module_of(node: Node) -> tuple[str, str]:
    """(package, module) by which a file imports a node's stage."""
    file = Path(node.stage.file)
    if file.parent == SHIPPED:
        return SHIPPED_PACKAGE, file.stem
    stage = getattr(node.stage.reference, "stage", node.stage)  # that of X.vjp says which X
    package, _, name = stage.reference.__module__.rpartition(".")
    if package.startswith("chunkwise_stages_"):
        message = f"{node.id} uses the stage {name} of {file}, which the exported file could not import"
        refuse(message, "bring the stage in by a package with an entry point chunkwise.stages", node.mark)
    return package, name
