"""A truth in float64 that passes through fewer digits on its way is no truth: seen while a reference runs."""

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Node
from ..stage_files.stage_source import StageSource


def all_in_float64(node: Node) -> AbstractContextManager:
    """While this lasts, a stage of one's own that turns float64 numbers into shorter ones raises ChunkwiseError. What
    leaves PyTorch (numpy, .item()) is not seen."""
    return nullcontext() if node.stage.shipped else NoNarrowing(node)


class NoNarrowing(TorchDispatchMode):
    """Looks at every operation's tensors: float64 in, shorter floating point out."""

    def __init__(self, node: Node):
        super().__init__()
        self.node = node

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not makes_anew(func) and holds_wide((args, kwargs)) and (short := short_dtype(result)):
            raise ChunkwiseError(narrowed(self.node, short))
        return result


def makes_anew(func) -> bool:
    """Whether only the shape of what comes in counts: zeros_like, new_ones."""
    name = func.overloadpacket.__name__
    return name.endswith("_like") or name.startswith("new_")


def holds_wide(parts) -> bool:
    return any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in tree_leaves(parts))


def short_dtype(result) -> torch.dtype | None:
    tensors = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return next((x.dtype for x in tensors if x.dtype != torch.float64), None)


def narrowed(node: Node, short: torch.dtype) -> Diagnostic:
    """Placed at the line of the stage's file that led here."""
    frame, source = sys._getframe(), StageSource(Path(node.stage.file))
    while frame and frame.f_code.co_filename != source.file:
        frame = frame.f_back
    mark = source.statement(frame.f_lineno) if frame else source.function("reference")
    message = f"{node.id}: {node.stage.name} rounds float64 numbers to {str(short).removeprefix('torch.')}"
    help = "verification computes the truth in float64: leave out .float() and the like, the runner casts what comes in"
    return Diagnostic(codes.STAGE_FAILED, message, mark, help=help)
