"""One token or many: the chunked form, or one kernel that goes token by token, where there are few and no gradients.

The choice depends on the longest sequence alone, never on the batch, so that a batch keeps its members' bits.
"""

from collections.abc import Mapping

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph
from ..stage_files.stage_library import Stage
from .apply import with_replaced

MODES = ("auto", "chunk", "recurrent")
SHORT = 16
"""auto: sequences of at most so many tokens go token by token."""


def recurrent_graph(graph: Graph, stages: Mapping[str, Stage]) -> Graph | None:
    """The graph with every part that a one-kernel recurrence can stand for replaced; None where none can."""
    found = with_replaced(graph, [each for each in stages.values() if each.pattern and not each.fuses], stages)
    return found if found is not graph else None


def check_mode(mode: str) -> str:
    """The mode, if there is one of that name."""
    if mode not in MODES:
        message = f"there is no mode {mode}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f"modes are {', '.join(MODES)}"))
    return mode


def goes_by_token(mode: str, longest: int | None) -> bool:
    """Whether a call without gradients prefers the recurrent form; longest: tokens of its longest sequence."""
    return mode == "recurrent" or (mode == "auto" and longest is not None and longest <= SHORT)


def no_recurrent_form(graph: Graph) -> ChunkwiseError:
    why = "no stage is known to do the work of its scan token by token"
    if "C" not in graph.spec.axes:
        why = "it has no chunks (axis C) in place of which its tokens could go one by one"
    message = f"{graph.name} has no recurrent form: {why}"
    return ChunkwiseError(Diagnostic(codes.USAGE, message, graph.spec.mark, help="leave the mode at auto or chunk"))
