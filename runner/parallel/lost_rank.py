"""A collective that fails because another rank is gone: one message that says where this one waited.

Over gloo, and wherever the host waits, PyTorch raises here. Over NCCL the device waits: there PyTorch's watchdog ends
the process at the group's timeout, in its own words; TORCH_NCCL_BLOCKING_WAIT=1 makes the host wait, which costs time.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic


@contextmanager
def meeting(what: str, rank: int, ranks: int) -> Iterator[None]:
    """Around what needs every rank; PyTorch raises RuntimeError when one has died, or when the timeout is over."""
    try:
        yield
    except RuntimeError as error:
        raise ChunkwiseError(lost(what, rank, ranks, error)) from error


def lost(what: str, rank: int, ranks: int, error: RuntimeError) -> Diagnostic:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    # without the place in PyTorch's own source, and the names of ours that a store waits for
    said = re.sub(r"^\[\S+:\d+\] |, keys: .*", "", first).split(". ")[0]
    waited = f"rank {rank} of {ranks} waited for the others in {what}"
    message = f"{waited}, and one of them is gone or did not come: {said:.160}"
    help = "what the other rank printed last says why; a rank that is only slow needs a longer timeout for its group"
    return Diagnostic(codes.RANK_LOST, message, help=help)
