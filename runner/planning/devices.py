"""The device that a command line names."""

import torch

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic


def read_device(text: str) -> torch.device:
    """``cpu``, ``cuda`` or ``cuda:1``, if this machine has it. Raises ChunkwiseError."""
    try:
        device = torch.device(text)
    except RuntimeError:
        raise ChunkwiseError(
            Diagnostic(codes.USAGE, f"--device {text!r} is not a device", help="cpu, cuda or cuda:1")
        ) from None
    if device.type not in ("cpu", "cuda"):
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"--device {text}: devices are cpu and cuda"))
    if device.type == "cpu" and device.index:
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"--device {text}: there is one cpu", help="--device cpu"))
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise ChunkwiseError(Diagnostic(codes.NO_GPU, f"--device {text}: this machine has {count} GPUs"))
        return torch.device("cuda", device.index or 0)
    return device
