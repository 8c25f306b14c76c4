"""Launches over the rows of a tensor [B, T, HV, V], for stages that treat each row by itself."""

from ._contract import Launch, ceil_div
from ._tiles import padded


def row_configs(axes, device):
    """BR rows at a time, in tiles of BV of their numbers."""
    BV = min(256, padded(axes["V"]))
    return [{"BV": BV, "BR": 4096 // BV, "num_warps": 4, "num_stages": 1}]


def over_rows(kernel, tensors, x, config):
    """A kernel over the rows of x, BR at a time."""
    B, T, HV, V = x.shape
    rows = B * T * HV
    return Launch(
        kernel,
        grid=(ceil_div(rows, config["BR"]),),
        args=dict(**tensors, rows=rows, HV=HV),
        constexprs=dict(V=V, BV=config["BV"], BR=config["BR"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )
