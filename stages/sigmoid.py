"""The logistic function, number by number: y = 1 / (1 + exp(-x)).

The gradient is taken from x: y near 1 in bfloat16 has no digits of 1 - y left.
"""

import torch

from ._contract import Contract, Launch, Launcher, Port, ceil_div

CONTRACT = Contract(
    inputs={"x": Port("B T HV")},
    outputs={"y": Port("B T HV", where="0..1")},
    flops="4 * B * T * HV",
)


def reference(x):
    """x, y [B, T, HV]."""
    return {"y": torch.sigmoid(x)}


def vjp(d_y, x, *, needs):
    """dx = dy sigmoid(x) sigmoid(-x)."""
    return {"x": d_y * torch.sigmoid(x) * torch.sigmoid(-x)}


def configs(axes, device):
    return [{"BN": 1024, "num_warps": 4, "num_stages": 1}]


def launch(x, y, *, seqs, config):
    from ..kernels.sigmoid import sigmoid_kernel

    return [_over_numbers(sigmoid_kernel, dict(x=x, y=y), x, config)]


def vjp_launch(d_y, x, d_x, *, seqs, config):
    from ..kernels.sigmoid import sigmoid_vjp_kernel

    return [_over_numbers(sigmoid_vjp_kernel, dict(d_y=d_y, x=x, d_x=d_x), x, config)]


def _over_numbers(kernel, tensors, x, config):
    n = x.numel()
    return Launch(
        kernel,
        grid=(ceil_div(n, config["BN"]),),
        args=dict(**tensors, n=n),
        constexprs=dict(BN=config["BN"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


LAUNCHERS = [Launcher("triton", launch, configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, configs)]
