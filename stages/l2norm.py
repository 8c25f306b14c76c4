"""Rows of length at most 1: each row divided by its L2 norm, softened by eps.

    y = x / sqrt(sum over K of x^2 + eps)

eps is added to the sum of squares, inside the root, as Hugging Face's models do: rows of amplitude 1e-4 stay
well below length 1, and a row of zeros gives zeros and a finite gradient.
"""

import torch

from ._contract import Contract, Launch, Launcher, Port, ceil_div

CONTRACT = Contract(
    inputs={"x": Port("B T H K")},
    outputs={"y": Port("B T H K", where="unit_norm(K)")},
    params={"eps": 1e-6},
    requires=("eps >= 0",),
    flops="3 * B * T * H * K",
)


def reference(x, *, eps):
    """x, y [B, T, H, K]."""
    return {"y": x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + eps)}


def vjp(d_y, x, *, needs, eps):
    """dx = r (dy - y <y, dy>), r = 1 / sqrt(sum x^2 + eps)."""
    r = torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + eps)
    y = x * r
    return {"x": r * (d_y - y * (y * d_y).sum(dim=-1, keepdim=True))}


def configs(axes, device):
    BK = power_of_two(axes["K"])
    return [{"BR": max(1, 4096 // BK), "num_warps": 4, "num_stages": 1}]


def power_of_two(n: int) -> int:
    """The least power of two that is not below n, from 16."""
    return max(16, 1 << (n - 1).bit_length())


def launch(x, y, *, eps, seqs, config):
    from ..kernels.l2norm import l2norm_kernel

    return [_over_rows(l2norm_kernel, dict(x=x, y=y), x, eps, config)]


def vjp_launch(d_y, x, d_x, *, eps, seqs, config):
    from ..kernels.l2norm import l2norm_vjp_kernel

    return [_over_rows(l2norm_vjp_kernel, dict(d_y=d_y, x=x, d_x=d_x), x, eps, config)]


def _over_rows(kernel, tensors, x, eps, config):
    K = x.shape[-1]
    rows = x.shape[0] * x.shape[1] * x.shape[2]
    return Launch(
        kernel,
        grid=(ceil_div(rows, config["BR"]),),
        args=dict(**tensors, eps=eps, rows=rows),
        constexprs=dict(K=K, BK=power_of_two(K), BR=config["BR"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


LAUNCHERS = [Launcher("triton", launch, configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, configs)]
