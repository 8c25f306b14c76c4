"""The types of gradients and rebuilt values: each follows from a value of the forward pass."""

from .answer import Line
from .facts import Facts, shape_of


def gradient_step(facts: Facts, name: str) -> Line | None:
    """The step from a forward value to its gradient or its copy; None where name is of the forward pass itself."""
    graph, forward = facts.graph, facts.op.whole
    if name in forward.values:
        return None
    value = graph.values[name]
    node = graph.nodes[value.producer] if value.producer else None
    if node is None:
        source = forward.outputs[value.port]
        text, mark = f"{name} is the gradient that comes in for {source}", facts.op.spec.outputs[value.port].source_mark
    elif node.phase == "rebuild":
        id = node.id.removesuffix(".rebuild")
        source = forward.nodes[id].outputs[value.port]
        text, mark = f"{name} is {source} once more, in the rebuild phase: {shape_of(value)}", node.mark
        return Line(f"so {text}, by {id}", mark, name, (source,))
    elif node.stage.name == "gradient_sum":
        parts = tuple(part for part in node.inputs.values() if part)
        return Line(f"so {name} is the sum of {', '.join(parts)}: {shape_of(value)}", node.mark, name, parts)
    else:
        id, port = node.id.partition(".vjp")[0], value.port.removeprefix("d_")
        if port not in forward.nodes[id].inputs:
            read = tuple(each for each in node.inputs.values() if each)
            text = f"{name} is made on the way to the gradients of {id}: {shape_of(value)}"
            return Line(f"so {text}, from {', '.join(read)}", node.mark, name, read)
        source = forward.nodes[id].inputs[port]
        text, mark = f"{name} is the gradient of {source} through {id}.{port}", node.edge_marks.get(port, node.mark)
    return Line(f"so {text}: {shape_of(value)}, {value.dtype}", mark, name, (source,))
