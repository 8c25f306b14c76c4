"""What is right and still worth a word: outputs that nothing reads, gradients by autograd, axes that nothing fixes,
keys with which a delta rule may diverge."""

from collections.abc import Iterable

from ...stages._contract import HELD
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from .graph import Graph, Node, Value
from .sizes import FOLLOWS
from .unify import written_source

LEFT_OPEN = "state/sequence_end"
"""The unit of what only a next call would read: an op without states in its outputs is no mistake."""

SUMS_TO_ONE = "softmax_k"
"""The stage whose rows are at most 1 long because they are positive and sum to 1."""


def warnings_of(whole: Graph, others: Iterable[Graph] = ()) -> list[Diagnostic]:
    """For the graph with everything present; others: with optional inputs absent, where axes may lose their size."""
    found = [each for node in whole.nodes.values() for each in (*unread_outputs(whole, node), *fallback(node))]
    axes = {}
    for graph in (whole, *others):
        for axis, warning in unfixed_axes(graph).items():
            axes.setdefault(axis, warning)
    return [*found, *axes.values(), *long_keys(whole)]


def unread_outputs(graph: Graph, node: Node) -> list[Diagnostic]:
    """A stage with some outputs that are read and others that are not: a port that was forgotten, perhaps."""
    read = {name for other in graph.nodes.values() for name in other.inputs.values()} | set(graph.outputs.values())
    unread = [
        port
        for port, name in node.outputs.items()
        if name not in read
        and not node.stage.contract.outputs[port].optional
        and node.stage.contract.outputs[port].unit != LEFT_OPEN
    ]
    if not unread:
        return []
    message = f"nothing reads {' and '.join(f'{node.id}.{port}' for port in unread)}"
    help = "bind it, or name it in outputs, if it was forgotten; it is neither computed nor stored"
    return [Diagnostic(codes.UNREAD_OUTPUT, message, node.mark, help=help, warning=True)]


def fallback(node: Node) -> list[Diagnostic]:
    """A stage without a vjp, where an input could want a gradient."""
    if node.stage.gradient != "autograd" or all(port.dtype in HELD for port in node.stage.contract.inputs.values()):
        return []
    message = f"the gradient of {node.id} ({node.stage.name}) is autograd through its reference"
    help = f"it is right, and PyTorch keeps what it likes for it: a vjp in {node.stage.name}.py is faster and smaller"
    return [Diagnostic(codes.GRADIENT_FALLBACK, message, node.mark, help=help, warning=True)]


def long_keys(graph: Graph) -> list[Diagnostic]:
    """One for each value that stands for the keys of a delta correction, and that nothing says to be at most 1 long."""
    found = {}
    for node in graph.nodes.values():
        name = node.inputs.get("k") if "beta" in node.inputs else None  # what is written with a strength is corrected
        if name and not at_most_one_long(graph, graph.values[name]):
            found.setdefault(name, long_key(graph, graph.values[name], node))
    return list(found.values())


def at_most_one_long(graph: Graph, value: Value) -> bool:
    producer = graph.nodes.get(value.producer)
    return any(law.kind == "unit_norm" for law in value.laws) or (producer and producer.stage.name == SUMS_TO_ONE)


def long_key(graph: Graph, value: Value, reader: Node) -> Diagnostic:
    keys = written_source(value, graph.spec.stages)
    message = f"nothing says that the keys {keys} are at most 1 long: past sqrt(2 / beta) the delta rule diverges"
    axis = value.axes[-1]
    help = (
        f"make them so by the stage l2norm (in the definition k / sqrt(sum(k * k, axis={axis}) + 1e-6)), or declare "
        f"where: unit_norm({axis}), if callers see to that"
    )
    mark = value.mark if value.producer is None else reader.edge_marks.get("k", reader.mark)
    return Diagnostic(codes.LONG_KEYS, message, mark, help=help, warning=True)


def unfixed_axes(graph: Graph) -> dict[str, Diagnostic]:
    """Axis -> a warning, for those of the graph's values that no present input has and no size or rule gives."""
    known = {axis for name, value in graph.inputs.items() if name not in graph.absent for axis in value.axes}
    known |= set(graph.spec.axes)
    for axis, sources in FOLLOWS.items():
        known |= {axis} if known.issuperset(sources) else set()
    found = {}
    for value in graph.values.values():
        for axis in value.axes:
            if isinstance(axis, str) and axis not in known and value.producer and axis not in found:
                found[axis] = unfixed(graph, axis, value.name, value.mark)
    return found


def unfixed(graph: Graph, axis: str, value: str, mark) -> Diagnostic:
    message = f"no input fixes the axis {axis} of {value}"
    if graph.absent:
        message += f" when {' and '.join(sorted(graph.absent))} {'is' if len(graph.absent) == 1 else 'are'} absent"
    rule = f"{axis} follows from {' and '.join(FOLLOWS[axis])}, " if axis in FOLLOWS else ""
    help = f"{rule}give an input that axis, or write axes: {{{(FOLLOWS.get(axis) or (axis,))[0]}: ...}}"
    return Diagnostic(codes.UNFIXED_AXIS, message, mark, help=help, warning=True)
