"""Values, outputs and edges: what they are, what follows from them, what runs for them."""

from ..graphs.unify import fill
from .answer import Answer, Line
from .chain import named, value_chain
from .facts import Facts, edge_place, type_of
from .machine import back_end, fusion
from .uses import kept, readers


def explain_input(facts: Facts, name: str) -> Answer:
    return explained(facts, name, name, "an input", value_chain(facts, name))


def explain_output(facts: Facts, name: str) -> Answer:
    source = facts.graph.outputs[name]
    last = Line(f"so the output {name} is {source}", facts.op.spec.outputs[name].source_mark, name, (source,))
    return explained(facts, name, source, f"an output, {source}", [*value_chain(facts, source), last])


def explain_made(facts: Facts, name: str) -> Answer:
    node = facts.producer(facts.graph.values[name])
    kind = f"an output of {node.id} ({node.stage.name})" if node else "a gradient that comes in"
    return explained(facts, name, name, kind, value_chain(facts, name))


def explain_edge(facts: Facts, name: str) -> Answer:
    """An input port: the value that it reads, and how each part of its type is met."""
    id, _, port = name.rpartition(".")
    node = facts.graph.nodes[id]
    source = node.inputs[port]
    lines = [*value_chain(facts, source), *fits(facts, id, port)]
    return explained(facts, name, source, f"an input of {id} ({node.stage.name}) that reads {source}", lines)


def fits(facts: Facts, id: str, name: str) -> list[Line]:
    """What the port asks for, which axes it fixes, which an earlier edge has fixed."""
    node = facts.graph.nodes[id]
    port, value = node.stage.contract.inputs[name], facts.graph.values[node.inputs[name]]
    mark, fact = edge_place(node, name), f"{id}.{name}"
    unit = fill(port.unit, node.units)
    wants = ", ".join(filter(None, [f"[{port.shape}] {port.dtype}", unit, port.where and f"where {port.where}"]))
    lines = [Line(f"{fact} takes {wants}, and {value.name} is that", mark, fact, (value.name,))]
    fixed = {axis: node.bound_by[axis] for axis in port.axes if axis in node.bound_by}
    by_edge: dict[str, list[str]] = {}
    for axis, origin in fixed.items():
        by_edge.setdefault(origin.port, []).append(axis)
    for other, axes in by_edge.items():
        first = node.bound_by[axes[0]]
        words = f"{first.text}, fixes {named(node, axes)} of {id}"
        lines.append(Line(words if other == name else f"earlier, {words}", first.mark, f"{id}.{other}"))
    return lines


def explained(facts: Facts, subject: str, name: str, kind: str, chain: list[Line]) -> Answer:
    value = facts.graph.values[name]
    node = facts.producer(value)
    sections = {
        "inference": chain,
        "read by": readers(facts, name),
        "backward": kept(facts, value),
        "back end": back_end(facts, node) if node else [],
        "fusion": fusion(facts, node) if node else [],
    }
    return Answer(subject, kind, type_of(value), sections)
