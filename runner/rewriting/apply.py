"""Every part of a graph that some stages can stand for, replaced by them."""

from collections.abc import Callable, Collection, Mapping

from ..graphs.graph import Graph, Node
from ..stage_files.stage_library import Stage
from .gradient_match import find_gradient
from .match import find_match
from .pattern import pattern_graphs
from .replace_gradient import with_gradient_replaced
from .replace_part import replaced


def with_replaced(
    graph: Graph,
    replacing: Collection[Stage],
    stages: Mapping[str, Stage],
    takes: Callable[[Node], bool] = lambda node: True,
    phase: str = "forward",
) -> Graph:
    """The largest pattern first, within one phase. takes: whether the node that would stand there can run; where it
    cannot, that place stays as it is. The graph itself where nothing fits."""
    found = graph
    for stage in sorted(replacing, key=lambda stage: -len(stage.pattern)):
        for pattern in pattern_graphs(stage, stages):
            while match := find_match(pattern, found, phase):
                after = replaced(found, pattern, match, stage)
                if not takes(after.nodes[match.last]):
                    break
                found = after
    return found


def with_gradients_replaced(
    graph: Graph,
    replacing: Collection[Stage],
    stages: Mapping[str, Stage],
    takes: Callable[[Node], bool] = lambda node: True,
) -> Graph:
    """The same over the backward pass: several stages in place of several. takes: asked of each of them."""
    found = graph
    for stage in replacing:
        while match := find_gradient(stage, stages, found):
            after = with_gradient_replaced(found, match, stage, stages)
            if after is None or not all(takes(node) for id, node in after.nodes.items() if id not in found.nodes):
                break
            found = after
    return found
