"""What reads a value, and what the backward pass does about it."""

from ..graphs.graph import Node, Value
from .answer import Line
from .facts import Facts, edge_place


def readers(facts: Facts, name: str) -> list[Line]:
    """Every port that reads a value, and the outputs that it is."""
    graph = facts.graph
    lines = [read_by(graph.nodes[id], port, name) for id, port in graph.consumers(name)]
    return lines + [
        Line(f"the output {output} is {name}", facts.op.spec.outputs[output].source_mark, output, (name,))
        for output, source in graph.outputs.items()
        if source == name
    ]


def read_by(node: Node, port: str, name: str) -> Line:
    fact = f"{node.id}.{port}"
    return Line(f"{fact} ({node.stage.name}) reads {name}", edge_place(node, port), fact, (name,))


def kept(facts: Facts, value: Value) -> list[Line]:
    """Whether a value of the forward pass is kept for the backward pass, rebuilt in it, or not needed there."""
    name, joint = value.name, facts.joint
    if name not in facts.op.whole.values:
        return []
    if not joint.gradients:
        return [Line(f"no input has a gradient, so {name} is not kept", value.mark, f"keeping {name}")]
    copy = f"{value.producer}.rebuild.{value.port}"
    later = {each: [f"{id}.{port}" for id, port in joint.consumers(each) if joint.nodes[id].phase != "forward"]
             for each in (name, copy)}  # fmt: skip
    if copy in joint.values:
        return [rebuilt(facts, value, later[copy])]
    if not later[name]:
        return [Line(f"the backward pass does not read {name}", value.mark, f"keeping {name}", (name,))]
    by = ", ".join(later[name])
    if value.producer is None:
        text = f"{name} is an input, which the caller holds: {by} read{'s' * (len(later[name]) == 1)} it in backward"
    elif name in joint.outputs.values():
        text = f"{name} is kept for {by}: an output, which the caller holds"
    else:
        text = f"{name} is kept for {by}: {size_in_words(facts.bytes(value))}{why_kept(facts, value)}"
    return [Line(text, value.mark, f"keeping {name}", (name, *later[name]))]


def why_kept(facts: Facts, value: Value) -> str:
    if facts.budget is None:
        return f", {value.producer} has no recompute mark"
    return f", within the budget of {size_in_words(facts.budget)}"


def rebuilt(facts: Facts, value: Value, later: list[str]) -> Line:
    name, saved = value.name, size_in_words(facts.bytes(value))
    entry = facts.op.spec.stages.get(value.producer)
    for_whom = f"{name} is rebuilt for {', '.join(later)}, {saved} less to keep"
    if facts.budget is not None:
        reason = f"the budget is {size_in_words(facts.budget)}"
        return Line(f"{for_whom}: {reason}", value.mark, f"keeping {name}", (name, *later))
    mark = entry.recompute_mark if entry else value.mark
    return Line(f"{for_whom}: {value.producer} is marked recompute", mark, f"keeping {name}", (name, *later))


def size_in_words(count: int | None) -> str:
    """Bytes as they are below 10 kB, in MB (10^6) above."""
    if count is None:
        return "bytes without a number"
    return f"{count:,} bytes" if count < 10**4 else f"{count / 1e6:,.3f} MB"
