"""Sum of the log decay inside each chunk, from natural log per token to base 2.

    y[i] = sum over j <= i in the chunk of max(x[j] log2 e, -126)

The clamp keeps one reset (a log decay of -3e37, say) from ruining the differences y[i] - y[j] of every later
row in float32: 2^-126 is already the least normal number. Where it clamps, the gradient is 0.
"""

import math

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div

CONTRACT = Contract(
    inputs={"x": Port("B T HV", F32, unit="log_decay/ln/token", where="<= 0")},
    outputs={"y": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)")},
    flops="2 * B * T * HV",
)


def reference(x, *, C):
    """x, y [B, T, HV]."""
    steps = torch.clamp(x * math.log2(math.e), min=-126.0)
    chunks = [part.cumsum(dim=1) for part in steps.split(C, dim=1)]
    return {"y": torch.cat(chunks, dim=1)}


def configs(axes, device):
    return [{"BH": 16, "num_warps": 2, "num_stages": 1}]


def launch(x, y, *, C, seqs, config):
    from ..kernels.chunk_local_cumsum import chunk_local_cumsum_kernel

    B, T, HV = x.shape
    return [
        Launch(
            chunk_local_cumsum_kernel,
            grid=(B * seqs.NT * ceil_div(HV, config["BH"]),),
            args=dict(x=x, y=y, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, HV=HV),
            constexprs=dict(C=C, BH=config["BH"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


LAUNCHERS = [Launcher("triton", launch, configs)]
