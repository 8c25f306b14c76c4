"""Numbers in eight bits, which a scale of their own stands beside."""

import torch

from ._contract import F32, Port

SCALE = Port("PAGES PAGE H", F32, unit="scale/row", where=">= 0", doc="of each row and head")


def as_bytes(x):
    """What a kernel reads: int8 as it is, fp8 as its bytes."""
    return x if x.dtype == torch.int8 else x.view(torch.uint8)


def dequantized(x, scale):
    """x [PAGES, PAGE, H, *] times scale [PAGES, PAGE, H]."""
    return x.to(scale.dtype) * scale[..., None]
