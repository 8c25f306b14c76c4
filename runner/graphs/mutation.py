"""What a call writes over: marked in the file, read by the one stage that writes it, and named among the outputs."""

from collections.abc import Mapping

from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic, Note
from ..loading.spec import InputSpec, PipelineSpec
from .graph import Graph, Node
from .wire import did_you_mean


def mutation_errors(graph: Graph) -> list[Diagnostic]:
    """Every way in which a call could write over something unannounced, or in an order that the file does not give."""
    spec, found, written = graph.spec, [], set()
    for node in graph.nodes.values():
        for port, over in node.stage.contract.mutated.items():
            found += node_errors(graph, node, port, node.inputs[over])
            written.add(node.inputs[over])
    for entry in spec.inputs.values():
        if entry.mutates and entry.name not in written and entry.name not in graph.absent:
            message = f"{entry.name} is marked mutates, and no stage writes over it"
            found.append(Diagnostic(codes.MUTATION, message, entry.mark, help="leave the mark out"))
    return found + slot_errors(spec)


def node_errors(graph: Graph, node: Node, port: str, source: str) -> list[Diagnostic]:
    """What is wrong with one output that is written over the value source."""
    what, entry = f"{node.id} ({node.stage.name}) writes {port} over {source}", graph.spec.inputs.get(source)
    if entry is None:
        help = "only what a caller hands in, and keeps, can be written over: bind an input"
        return [Diagnostic(codes.MUTATION, f"{what}, which is no input of the pipeline", node.mark, help=help)]
    if not entry.mutates:
        note = Note(f"{source} is an input here", entry.mark)
        help = f"add mutates: true to {source}: whoever calls the op must know"
        return [Diagnostic(codes.MUTATION, f"{what}, which the file does not say", node.mark, (note,), help)]
    readers = [(reader, at) for reader, at in graph.consumers(source) if reader != node.id]
    if readers:
        message = f"{what}, and {readers[0][0]} reads {source} too: before or after?"
        return [Diagnostic(codes.MUTATION, message, node.mark, help="only the stage that writes it may read it")]
    if node.outputs[port] not in graph.outputs.values():
        message = f"{what}, and no output of the pipeline is {node.outputs[port]}"
        help = f"add new_{source}: {node.outputs[port]} to outputs"
        return [Diagnostic(codes.MUTATION, message, node.mark, help=help)]
    return []


def slot_errors(spec: PipelineSpec) -> list[Diagnostic]:
    return [error for entry in spec.inputs.values() if entry.slots for error in slots_error(entry, spec.inputs)]


def slots_error(entry: InputSpec, inputs: Mapping[str, InputSpec]) -> list[Diagnostic]:
    """What is wrong with the input that names the rows of another."""
    name = str(entry.slots.value)
    if name not in inputs:
        help = did_you_mean(name, inputs) or f"the inputs are {', '.join(inputs)}"
        return [Diagnostic(codes.UNKNOWN_SOURCE, f"there is no input {name}", entry.slots.mark, help=help)]
    indices = inputs[name]
    if (indices.shape, indices.dtype) == (("N",), "int"):
        return []
    message = f"{name} names the row of {entry.name} for each sequence, and it is no [N] of int"
    note = Note(f"{name} is [{' '.join(indices.shape)}] {indices.dtype} here", indices.mark)
    return [Diagnostic(codes.MUTATION, message, entry.slots.mark, (note,), f"write {name}: {{shape: N, dtype: int}}")]
