"""Where a pattern fits into a graph: the same stages with the same edges, from one node of each backwards."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..graphs.graph import Graph, Node


@dataclass
class Match:
    """nodes: pattern node -> graph node, by id. values: pattern input -> the graph's value, None where absent.
    params: pattern param -> what the graph binds there."""

    nodes: dict[str, str] = field(default_factory=dict)
    values: dict[str, str | None] = field(default_factory=dict)
    params: dict[str, str | float] = field(default_factory=dict)
    last: str = ""
    """The graph node that stands for the pattern's last one."""
    phase: str = "forward"


def find_match(pattern: Graph, graph: Graph, phase: str = "forward") -> Match | None:
    """The first place in the graph's order where the pattern fits, and where nothing else reads what goes."""
    for match in matches(pattern, graph, phase):
        if not leaks(pattern, graph, match) and closed(graph, set(match.nodes.values())):
            return match
    return None


def matches(pattern: Graph, graph: Graph, phase: str = "forward") -> Iterator[Match]:
    """Every place in a phase where the pattern fits, whoever else reads what is in it."""
    last = list(pattern.nodes.values())[-1]
    for node in graph.nodes.values():
        match = Match(last=node.id, phase=phase)
        if fits(pattern, last, graph, node, match) and len(match.nodes) == len(pattern.nodes):
            yield match


def fits(pattern: Graph, wanted: Node, graph: Graph, node: Node, match: Match) -> bool:
    """Whether a node of the graph can be the wanted one, with everything that it reads; noted in match."""
    if wanted.id in match.nodes:
        return match.nodes[wanted.id] == node.id
    if wanted.stage.name != node.stage.name or node.phase != match.phase:
        return False
    match.nodes[wanted.id] = node.id
    edges = all(
        edge_fits(pattern, source, graph, node.inputs.get(port), match) for port, source in wanted.inputs.items()
    )
    return edges and all(
        param_fits(value, node.params.get(name), pattern, match) for name, value in wanted.params.items()
    )


def edge_fits(pattern: Graph, wanted: str | None, graph: Graph, source: str | None, match: Match) -> bool:
    if wanted is None:
        return source is None
    if wanted in pattern.inputs:
        return source is not None and match.values.setdefault(wanted, source) == source
    if source is None or graph.values[source].producer is None:
        return False
    mine, its = pattern.values[wanted], graph.values[source]
    maker, its_maker = pattern.nodes[mine.producer], graph.nodes[its.producer]
    return mine.port == its.port and fits(pattern, maker, graph, its_maker, match)


def param_fits(wanted: str | float, given: str | float, pattern: Graph, match: Match) -> bool:
    """A param of the pattern takes what the graph has there; a number must be that number."""
    if wanted in pattern.spec.params:
        return match.params.setdefault(wanted, given) == given
    return wanted == given


def leaks(pattern: Graph, graph: Graph, match: Match) -> set[str]:
    """Values that would go, and that something outside of the match reads."""
    gone = set(match.nodes.values())
    made = {name for id in gone for name in graph.nodes[id].outputs.values()}
    stays = {graph_value(pattern, graph, match, value) for value in pattern.outputs.values()}
    read = {name for node in graph.nodes.values() if node.id not in gone for name in node.inputs.values()}
    return (made - stays) & (read | set(graph.outputs.values()))


def closed(graph: Graph, inside: set[str]) -> bool:
    """Whether no way leads out of the match and in again: one node in its place would wait for itself."""
    after: set[str] = set()
    for node in graph.nodes.values():
        makers = {graph.values[name].producer for name in node.inputs.values() if name}
        if node.id in inside and makers & after:
            return False
        if node.id not in inside and makers & (inside | after):
            after.add(node.id)
    return True


def graph_value(pattern: Graph, graph: Graph, match: Match, value: str) -> str | None:
    """The graph's value for one that a node of the pattern makes; None where it is not made there: what is rebuilt is
    what is read."""
    made = pattern.values[value]
    return graph.nodes[match.nodes[made.producer]].outputs.get(made.port)
