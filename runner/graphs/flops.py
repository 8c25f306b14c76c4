"""What a stage's contract says that it computes, in numbers."""

from collections.abc import Mapping
from pathlib import Path

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..stage_files.stage_source import StageSource
from .graph import Graph, Node
from .sizes import figures, local_sizes, number


def flops(node: Node, sizes: Mapping[str, int]) -> float:
    """Floating-point operations of one run of a node. Raises ChunkwiseError, at the text in the stage's file, where
    these sizes give no count."""
    text, axes = node.stage.contract.flops, local_sizes(node, sizes)
    what, place = f"flops of {node.id} ({node.stage.name})", None
    try:
        count = number(what, text, axes, place)
    except ChunkwiseError as error:
        (found,) = error.diagnostics
        raise ChunkwiseError(Diagnostic(found.code, found.message, place_of(node), help=found.help)) from None
    if count < 0:
        message = f"{what}: {text} is {count}, for {figures(text, axes)}, and a count is never below 0"
        raise ChunkwiseError(Diagnostic(codes.EXPRESSION_VALUE, message, place_of(node)))
    return float(count)


def place_of(node: Node):
    return StageSource(Path(node.stage.file)).contract_texts("flops", [node.stage.contract.flops])[0].mark


def require_flops(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raises ChunkwiseError with every stage of the graph whose count these sizes leave without a value."""
    found = []
    for node in graph.nodes.values():
        try:
            flops(node, sizes)
        except ChunkwiseError as error:
            found += error.diagnostics
    if found:
        raise ChunkwiseError(*found)
