"""What a rewritten graph keeps of its forward pass."""

from dataclasses import replace

from ..graphs.graph import Graph


def keep_what_is_read(graph: Graph) -> Graph:
    """The graph, keeping the forward values that its rebuild and backward phases read."""
    made = {name for node in graph.nodes.values() if node.phase == "forward" for name in node.outputs.values()}
    return replace(graph, kept=tuple(name for name in graph.values if name in made & graph.read_later))
