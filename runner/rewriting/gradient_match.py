"""Where the backward pass in a graph is that of a pattern: the same vjps, with the same edges between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..graphs.graph import Graph, Node
from ..stage_files.stage_library import Stage
from .gradient_pattern import absences, derived, forward_pattern, gradient_of, gradient_uses
from .match import Match, closed, graph_value, matches
from .pattern import Stages


@dataclass
class GradientMatch:
    """forward: where the pattern's stages stand. wanted: its inputs whose gradients are made there. cotangents: its
    outputs that gradients flow into. nodes: what goes, vjps and the sums between them. reads: value of the pattern, or
    its input's or cotangent's name -> the graph's value that is read for it. given: wanted -> the contributions to its
    gradient, in the graph's order."""

    forward: Match
    absent: frozenset[str]
    wanted: tuple[str, ...] = ()
    cotangents: tuple[str, ...] = ()
    nodes: list[str] = field(default_factory=list)
    reads: dict[str, str] = field(default_factory=dict)
    given: dict[str, list[str]] = field(default_factory=dict)


def find_gradient(stage: Stage, stages: Mapping[str, Stage], graph: Graph) -> GradientMatch | None:
    """The first place where the graph's backward pass is that of the stage's pattern, and no one else reads of it."""
    library = Stages(stages)
    if not {entry.use for entry in gradient_of(stage).stages.values()} | gradient_uses(stage) <= library.keys():
        return None
    for absent in absences(stage):
        pattern = forward_pattern(stage, library, absent)
        for forward in matches(pattern, graph):
            match = GradientMatch(forward, absent)
            flowing(match, pattern, graph)
            if match.wanted and match.cotangents and is_derivative(match, stage, library, pattern, graph):
                return match
    return None


def flowing(match: GradientMatch, pattern: Graph, graph: Graph) -> None:
    """Notes for which inputs, and from which outputs, the graph's backward pass through the match is."""
    wanted, cotangents = set(), set()
    for node in pattern.nodes.values():
        vjp = f"{match.forward.nodes[node.id]}.vjp"
        for each in graph.nodes.values():
            if is_of(each.id, vjp):
                wanted |= {name for port, name in node.inputs.items() if f"d_{port}" in each.outputs}
                cotangents |= {name for port, name in node.outputs.items() if each.inputs.get(f"d_{port}")}
    match.wanted = tuple(name for name in pattern.inputs if name in wanted)
    match.cotangents = tuple(name for name, value in pattern.outputs.items() if value in cotangents)


def is_derivative(match: GradientMatch, stage: Stage, stages: Stages, pattern: Graph, graph: Graph) -> bool:
    """Whether the nodes there are what the reverse walk makes of the pattern, up to the sums at its inputs."""
    whole = derived(stage, stages, match.absent, match.wanted, match.cotangents)
    inner = [node for node in whole.nodes.values() if node.phase == "backward" and not at_input(node, whole)]
    there = {node.id: graph.nodes.get(counterpart(node, whole, match, graph)) for node in inner}
    if not all(there[node.id] and node_fits(node, there, whole, match, graph) for node in inner):
        return False
    match.nodes = [id for id in graph.nodes if id in {node.id for node in there.values()}]
    match.given = {name: contributions(name, inner, there, pattern, match) for name in match.wanted}
    return not leaks(match, graph) and closed(graph, set(match.nodes))


def at_input(node: Node, whole: Graph) -> bool:
    """Whether it is a sum of contributions to an input of the pattern: others may add to it."""
    return node.id.partition("/")[0] in {f"d({name})" for name in whole.inputs}


def counterpart(node: Node, whole: Graph, match: GradientMatch, graph: Graph) -> str:
    """The id that the reverse walk gives the same node in the graph."""
    if node.stage.name == "gradient_sum":
        value, _, rest = node.id.removeprefix("d(").partition(")")
        made = whole.values[value]
        return f"d({graph.nodes[match.forward.nodes[made.producer]].outputs[made.port]}){rest}"
    id, _, rest = node.id.partition(".vjp")
    return f"{match.forward.nodes[id]}.vjp{rest}"


def node_fits(node: Node, there: Mapping[str, Node], whole: Graph, match: GradientMatch, graph: Graph) -> bool:
    """Whether the graph's node is that stage, makes the same gradients, and reads the same."""
    found = there[node.id]
    same = node.stage.name == found.stage.name and node.outputs.keys() == found.outputs.keys()
    return same and all(
        edge_fits(name, found.inputs.get(port), there, whole, match, graph) for port, name in node.inputs.items()
    )


def edge_fits(name: str | None, source: str | None, there: Mapping, whole: Graph, match: GradientMatch, graph: Graph):
    if name is None or source is None:
        return name is source
    value = whole.values[name]
    if value.producer in there:
        return there[value.producer].outputs.get(value.port) == source
    if name not in whole.cotangents.values() and first_made(source, graph) != forward_value(name, match, whole, graph):
        return False
    return match.reads.setdefault(name, source) == source


def forward_value(name: str, match: GradientMatch, whole: Graph, graph: Graph) -> str | None:
    """The graph's value for one of the pattern's forward pass."""
    return match.forward.values[name] if name in whole.inputs else graph_value(whole, graph, match.forward, name)


def first_made(source: str, graph: Graph) -> str:
    """The forward pass's value, where it is rebuilt for the backward pass."""
    value = graph.values[source]
    if value.producer is None or graph.nodes[value.producer].phase != "rebuild":
        return source
    return graph.nodes[value.producer.removesuffix(".rebuild")].outputs[value.port]


def contributions(name: str, inner: list[Node], there: Mapping[str, Node], pattern: Graph, match: GradientMatch):
    """What the match's vjps add to the gradient of one of its inputs."""
    ports = {
        (f"{match.forward.nodes[node.id]}.vjp", f"d_{port}")
        for node in pattern.nodes.values()
        for port, source in node.inputs.items()
        if source == name
    }
    found = (
        (each.id, port, value) for node in inner for each in [there[node.id]] for port, value in each.outputs.items()
    )
    return [value for id, port, value in found if any(port == name and is_of(id, vjp) for vjp, name in ports)]


def is_of(id: str, vjp: str) -> bool:
    """Whether a node is that vjp, or one of the stages that it is."""
    return id == vjp or id.startswith(f"{vjp}.")


def leaks(match: GradientMatch, graph: Graph) -> set[str]:
    """Values that would go, and that something outside of the match reads."""
    gone = set(match.nodes)
    made = {name for id in gone for name in graph.nodes[id].outputs.values()}
    stays = {name for names in match.given.values() for name in names}
    read = {name for node in graph.nodes.values() if node.id not in gone for name in node.inputs.values()}
    return (made - stays) & (read | set(graph.gradients.values()))
