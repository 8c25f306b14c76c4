"""The graph after a match: one node in the place of many, over the same boundary values."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import networkx as nx

from ..graphs.graph import Graph, Node, Term, Value
from ..graphs.unify import GLOBAL_AXES
from ..stage_files.stage_library import Stage
from .match import Match, graph_value


def replaced(graph: Graph, pattern: Graph, match: Match, stage: Stage) -> Graph:
    """The values at the boundary keep their names; the new node takes the id and place of the last one that goes."""
    gone = [node.id for node in graph.nodes.values() if node.id in match.nodes.values()]
    last = graph.nodes[gone[-1]]
    outputs = {name: graph_value(pattern, graph, match, value) for name, value in pattern.outputs.items() if value}
    outputs = {name: value for name, value in outputs.items() if value}
    inputs = {port: match.values.get(port) for port in stage.contract.inputs}
    node = Node(
        id=last.id, stage=stage, inputs=inputs, outputs=outputs, axes=axes_of(graph, stage, inputs),
        params={**{n: v for n, v in stage.contract.params.items() if v is not None}, **match.params}, mark=last.mark,
        phase=last.phase, replaces=tuple(gone),
    )  # fmt: skip
    boundary = {value: port for port, value in outputs.items()}
    values = {
        name: replace(value, producer=node.id, port=boundary[name]) if name in boundary else value
        for name, value in graph.values.items()
        if name in boundary or value.producer not in gone
    }
    nodes = {node.id: node} | {id: each for id, each in graph.nodes.items() if id not in gone}
    nodes = in_order(nodes, values, list(graph.nodes))
    return replace(graph, values=values, nodes=nodes, file=graph.file or graph)


def in_order(nodes: Mapping[str, Node], values: Mapping[str, Value], place: Sequence[str]) -> dict[str, Node]:
    """The nodes after those that they read; where that leaves it open, in the order that they had."""
    edges = nx.DiGraph()
    edges.add_nodes_from(nodes)
    for node in nodes.values():
        makers = (values[name].producer for name in node.inputs.values() if name)
        edges.add_edges_from((maker, node.id) for maker in makers if maker)
    return {id: nodes[id] for id in nx.lexicographical_topological_sort(edges, key=place.index)}


def axes_of(graph: Graph, stage: Stage, inputs: dict[str, str | None]) -> dict[str, Term]:
    """The stage's axes under the graph's names, by the values that it reads."""
    axes = {axis: axis for axis in stage.axis_names if axis in GLOBAL_AXES}
    for port, value in inputs.items():
        if value is not None:
            axes |= dict(zip(stage.contract.inputs[port].axes, graph.values[value].axes))
    return axes
