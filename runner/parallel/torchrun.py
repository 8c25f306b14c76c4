"""Whether this process is one of several that torchrun started."""

import os

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic


def require_ranks(what: str, command: str) -> None:
    """what needs them, in words. command: what torchrun starts. Raises ChunkwiseError."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        message = f"{what} needs several processes, and this one was started alone"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f"torchrun --nproc-per-node 2 {command}"))
