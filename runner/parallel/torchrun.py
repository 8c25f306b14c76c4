"""Whether this process is one of several that torchrun started, and whether it should be."""

import os

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic


def require_ranks(what: str, command: str) -> None:
    """what needs them, in words. command: what torchrun starts. Raises ChunkwiseError."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        message = f"{what} needs several processes, and this one was started alone"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f"torchrun --nproc-per-node 2 {command}"))


def refuse_ranks(command: str) -> None:
    """Raises ChunkwiseError where torchrun started several processes, each of which would do all of it at once."""
    count = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in os.environ and count != "1":
        message = f"{command} is of one process, and torchrun started {count}: each would do all of it"
        help = "run PIPE --context-parallel is of all of them; start anything else without torchrun"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))
