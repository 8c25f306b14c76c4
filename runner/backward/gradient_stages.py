"""A gradient that is several stages: ``X.vjp`` as its file's VJP_STAGES have it, each timed and verified by itself."""

from collections.abc import Mapping
from dataclasses import replace

from ..graphs.graph import Graph, Node, Value
from ..rewriting.pattern import Stages, pattern_graph
from ..stage_files.stage_library import Stage


def with_gradient_stages(graph: Graph, stages: Mapping[str, Stage]) -> Graph:
    """The graph with the stages in the place of each such node, as far as its outputs need them. The values that it
    takes and gives keep their names."""
    nodes, values = {}, dict(graph.values)
    for node in graph.nodes.values():
        parts = parts_of(node, stages) if node.stage.is_vjp and node.stage.pattern else None
        if parts is None:
            nodes[node.id] = node
            continue
        for part, made in parts:
            nodes[part.id] = part
            values |= {
                name: replace(values.get(name, value), name=name, producer=part.id, port=value.port)
                for name, value in made.items()
            }
    return replace(graph, nodes=nodes, values=values)


def parts_of(node: Node, stages: Mapping[str, Stage]) -> list[tuple]:
    """(part, what it makes by name) in order; what nobody needs is left out."""
    absent = frozenset(port for port in node.stage.contract.inputs if not node.inputs.get(port))
    pattern = pattern_graph(node.stage, Stages(stages), absent)
    named = {pattern.inputs[port].name: name for port, name in node.inputs.items() if name}
    named |= {pattern.outputs[port]: name for port, name in node.outputs.items()}
    needed, kept = {pattern.outputs[port] for port in node.outputs}, []
    for part in reversed(pattern.nodes.values()):
        outputs = {port: value for port, value in part.outputs.items() if value in needed}
        if outputs:
            kept.append(replace(part, outputs=outputs))
            needed |= {value for value in part.inputs.values() if value}
    return [placed(part, node, named, pattern) for part in reversed(kept)]


def placed(part: Node, node: Node, named: Mapping[str, str], pattern: Graph) -> tuple:
    def name(value: str) -> str:
        return named.get(value, f"{node.id}.{value}")

    def typed(value: Value) -> Value:
        return replace(value, axes=tuple(node.axes.get(axis, axis) for axis in value.axes), mark=node.mark)

    made = {name(value): typed(pattern.values[value]) for value in part.outputs.values()}
    placed = replace(
        node,
        id=f"{node.id}.{part.id}",
        stage=part.stage,
        inputs={port: name(value) if value else None for port, value in part.inputs.items()},
        outputs={port: name(value) for port, value in part.outputs.items()},
        axes={axis: node.axes.get(term, term) for axis, term in part.axes.items()},
        params={each: node.params.get(value, value) for each, value in part.params.items()},
    )
    return placed, made
