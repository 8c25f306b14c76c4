"""Which node of one graph is which of another: by what it computes, then by what it is called.

Two nodes mean the same when they are the same stage with the same parameters on the same values, whatever their ids.
What is left is matched by id where that is the same stage; then a stage by the same stage that has most edges in
common with it, or stands between the same matched ones; and by id alone last.
"""

from collections.abc import Callable, Iterable, Mapping

from ..graphs.graph import Graph, Node

Meaning = tuple
Matches = dict[str, str]


def match_nodes(old: Graph, new: Graph) -> Matches:
    """Ids of nodes of old -> of new, one to one."""
    matches = Matches()
    before, after = meanings(old, known := {}), meanings(new, known)
    pair(old, new, matches, lambda a, b: a.id == b.id and before[a.id] == after[b.id])
    pair(old, new, matches, lambda a, b: before[a.id] == after[b.id])
    pair(old, new, matches, lambda a, b: a.id == b.id and a.stage.name == b.stage.name)
    pair_by_edges(old, new, matches)
    pair(old, new, matches, lambda a, b: a.stage.name == b.stage.name and same_place(old, new, a.id, b.id, matches))
    pair(old, new, matches, lambda a, b: a.id == b.id)
    return matches


def meanings(graph: Graph, known: dict[Meaning, int]) -> dict[str, int]:
    """A number for each node, the same for the same meaning. known: the numbers given so far."""
    result: dict[str, int] = {}

    def source(name: str | None) -> tuple | None:
        value = graph.values.get(name)
        return value and (result.get(value.producer, "input"), value.port)

    for node in graph.nodes.values():
        ports = tuple((port, source(name)) for port, name in sorted(node.inputs.items()) if name)
        params = tuple((name, str(value)) for name, value in sorted(node.params.items()))
        result[node.id] = known.setdefault((node.stage.name, params, ports), len(known))
    return result


def left(graph: Graph, taken: Iterable[str]) -> list[Node]:
    taken = set(taken)
    return [node for node in graph.nodes.values() if node.id not in taken]


def pair(old: Graph, new: Graph, matches: Matches, same: Callable[[Node, Node], bool]) -> None:
    """Match each node that is left with the first one that is left and the same."""
    for node in left(old, matches):
        found = next((other for other in left(new, matches.values()) if same(node, other)), None)
        if found:
            matches[node.id] = found.id


def same_place(old: Graph, new: Graph, node: str, other: str, matches: Matches) -> bool:
    """Whether what is matched comes before both or after both, in the order that the nodes run in."""
    first, second = ({name: place for place, name in enumerate(graph.nodes)} for graph in (old, new))
    return all((first[a] < first[node]) == (second[b] < second[other]) for a, b in matches.items())


def pair_by_edges(old: Graph, new: Graph, matches: Matches) -> None:
    for node in left(old, matches):
        others = [other for other in left(new, matches.values()) if other.stage.name == node.stage.name]
        best = max(others, key=lambda other: common_edges(old, node, other, matches), default=None)
        if best and common_edges(old, node, best, matches):
            matches[node.id] = best.id


def common_edges(old: Graph, node: Node, other: Node, matches: Mapping[str, str]) -> int:
    """Ports of both that read the same value."""
    sources = {port: renamed(old, name, matches) for port, name in node.inputs.items() if name}
    return sum(other.inputs.get(port) == source for port, source in sources.items())


def renamed(graph: Graph, value: str, matches: Mapping[str, str]) -> str:
    """A value of graph by the name that it has in the other graph, if its node is there."""
    producer = graph.values[value].producer
    return f"{matches[producer]}.{graph.values[value].port}" if producer in matches else value
