"""Each block of M tokens and the one before it as one entry, by a softmax of their own for each channel.

    w = softmax over the 2 M tokens of (z_a + bias_a of this block, z_b + bias_b of the one before)
    y = sum of w a over this block + sum of w b over the one before

The first block has none before it.
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div

VALUES, LOGITS = Port("B NB M D", unit="{entry}"), Port("B NB M D", unit="{logit}")
BIAS = Port("M D", F32, unit="{logit}")
CONTRACT = Contract(
    inputs={"a": VALUES, "b": VALUES, "z_a": LOGITS, "z_b": LOGITS, "bias_a": BIAS, "bias_b": BIAS},
    outputs={"y": Port("B NB D", unit="{entry}")},
    flops="10 * B * NB * M * D",
)


def reference(a, b, z_a, z_b, bias_a, bias_b):
    """a, b, z_a, z_b [B, NB, M, D], bias_a, bias_b [M, D], y [B, NB, D]."""
    weights, values = torch.softmax(logits(z_a, z_b, bias_a, bias_b), 2), torch.cat([a, before(b, 0.0)], 2)
    return {"y": (weights * values).sum(2)}


def before(x, first):
    """[B, NB, M, D]: what the block before has; first for the first one."""
    return torch.cat([torch.full_like(x[:, :1], first), x[:, :-1]], 1)


def logits(z_a, z_b, bias_a, bias_b):
    """[B, NB, 2 M, D]."""
    return torch.cat([z_a + bias_a, before(z_b + bias_b, -torch.inf)], 2)


def vjp(d_y, a, b, z_a, z_b, bias_a, bias_b, *, needs):
    """With v the values of both blocks: dv = w dy; dz = w dy (v - y)."""
    w, v = torch.softmax(logits(z_a, z_b, bias_a, bias_b), 2), torch.cat([a, before(b, 0.0)], 2)
    y = (w * v).sum(2, keepdim=True)
    dv = w * d_y[:, :, None]
    dz, M = dv * (v - y), a.shape[2]
    grads = {"a": dv[:, :, :M], "b": after(dv[:, :, M:]), "z_a": dz[:, :, :M], "z_b": after(dz[:, :, M:])}
    grads |= {"bias_a": grads["z_a"].sum((0, 1)), "bias_b": grads["z_b"].sum((0, 1))}
    return {name: x for name, x in grads.items() if name in needs}


def after(d):
    """What each block gets from the one after it; the last one gets nothing."""
    return torch.cat([d[:, 1:], torch.zeros_like(d[:, :1])], 1)


def configs(axes, device):
    BM = 1 << (axes["M"] - 1).bit_length()
    return [{"BM": BM, "BD": max(16, min(512, 8192 // BM)), "num_warps": 4, "num_stages": 1}]


def launch(a, b, z_a, z_b, bias_a, bias_b, y, *, seqs, config):
    from ..kernels.compress_blocks import compress_blocks_kernel

    B, NB, M, D = a.shape
    BD = min(config["BD"], 1 << (D - 1).bit_length())
    return [
        Launch(
            compress_blocks_kernel,
            grid=(B * NB * ceil_div(D, BD),),
            args=dict(a=a, b=b, z_a=z_a, z_b=z_b, bias_a=bias_a, bias_b=bias_b, y=y, NB=NB),
            constexprs=dict(M=M, D=D, BM=config["BM"], BD=BD),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


LAUNCHERS = [Launcher("triton", launch, configs)]
