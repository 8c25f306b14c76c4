"""Softmax of each row over K: a feature map whose rows are positive and sum to 1.

    y = exp(x - max x) / sum over K of exp(x - max x)

The gradient is taken from x: y in bfloat16 has lost too many digits for its differences.
"""

import torch

from ._contract import Contract, Launch, Launcher, Port, ceil_div
from ._tiles import padded

CONTRACT = Contract(
    inputs={"x": Port("B T H K")},
    outputs={"y": Port("B T H K", where="0..1")},
    flops="6 * B * T * H * K",
)


def reference(x):
    """x, y [B, T, H, K]."""
    return {"y": _softmax(x)}


def _softmax(x):
    e = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return e / e.sum(dim=-1, keepdim=True)


def vjp(d_y, x, *, needs):
    """dx = y (dy - <y, dy>)."""
    y = _softmax(x)
    return {"x": y * (d_y - (y * d_y).sum(dim=-1, keepdim=True))}


def configs(axes, device):
    BK = padded(axes["K"])
    return [{"BR": max(1, 2048 // BK), "num_warps": 4, "num_stages": 1}]


def launch(x, y, *, seqs, config):
    from ..kernels.softmax_k import softmax_k_kernel

    return [_over_rows(softmax_k_kernel, dict(x=x, y=y), x, config)]


def vjp_launch(d_y, x, d_x, *, seqs, config):
    from ..kernels.softmax_k import softmax_k_vjp_kernel

    return [_over_rows(softmax_k_vjp_kernel, dict(d_y=d_y, x=x, d_x=d_x), x, config)]


def _over_rows(kernel, tensors, x, config):
    B, T, H, K = x.shape
    rows = B * T * H
    return Launch(
        kernel,
        grid=(ceil_div(rows, config["BR"]),),
        args=dict(**tensors, rows=rows),
        constexprs=dict(K=K, BK=padded(K), BR=config["BR"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


LAUNCHERS = [Launcher("triton", launch, configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, configs)]
