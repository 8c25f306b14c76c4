"""What a name may mean in a pipeline: an output, an input, a stage entry, a port, an axis, a unit."""

from collections.abc import Callable, Iterator

from ...stages._units import UNITS
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, quoted
from ..diagnostics.hints import nearby
from .answer import Answer
from .explain_axis import explain_axis
from .explain_stage import explain_stage
from .explain_unit import explain_unit
from .explain_value import explain_edge, explain_input, explain_made, explain_output
from .facts import Facts


def explain(facts: Facts, name: str) -> list[Answer]:
    """The answers for everything that has this name. Raises ChunkwiseError where nothing has it."""
    known = [(each, answer) for each, answer in subjects(facts)]
    found = [answer(facts, name) for each, answer in known if each == name]
    if found:
        return found
    close = nearby(name, (each for each, _ in known))
    message = f"{facts.graph.name} has no stage, port, axis, unit, input or output {quoted(name)}"
    help = f"did you mean {' or '.join(close)}?" if close else overview(facts)
    raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))


def subjects(facts: Facts) -> Iterator[tuple[str, Callable[[Facts, str], Answer]]]:
    """Every name that can be asked about, with what answers it."""
    graph = facts.graph
    yield from ((name, explain_output) for name, source in graph.outputs.items() if source)
    yield from ((name, explain_input) for name in graph.inputs)
    for node in graph.nodes.values():
        yield node.id, explain_stage
        yield from ((f"{node.id}.{port}", explain_edge) for port, source in node.inputs.items() if source)
    yield from ((name, explain_made) for name in graph.values if name not in graph.inputs)
    yield from ((axis, explain_axis) for axis in dict.fromkeys((*graph.spec.axes, *graph.axis_names)))
    units = {value.unit for value in graph.values.values()} - {None}
    yield from ((unit, explain_unit) for unit in dict.fromkeys((*UNITS, *sorted(units))))


def overview(facts: Facts) -> str:
    graph = facts.graph
    axes = dict.fromkeys((*graph.spec.axes, *graph.axis_names))
    return f"stages are {', '.join(graph.nodes)}; axes {', '.join(axes)}; inputs {', '.join(graph.inputs)}"
