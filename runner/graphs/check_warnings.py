"""What is right and still worth a word: outputs that nothing reads, gradients by autograd, axes that nothing fixes."""

from collections.abc import Iterable

from ...stages._contract import HELD
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic
from .graph import Graph, Node
from .sizes import FOLLOWS

LEFT_OPEN = "state/sequence_end"
"""The unit of what only a next call would read: an op without states in its outputs is no mistake."""


def warnings_of(whole: Graph, others: Iterable[Graph] = ()) -> list[Diagnostic]:
    """For the graph with everything present; others: with optional inputs absent, where axes may lose their size."""
    found = [each for node in whole.nodes.values() for each in (*unread_outputs(whole, node), *fallback(node))]
    axes = {}
    for graph in (whole, *others):
        for axis, warning in unfixed_axes(graph).items():
            axes.setdefault(axis, warning)
    return [*found, *axes.values()]


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
