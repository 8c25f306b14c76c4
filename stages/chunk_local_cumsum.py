"""Sum of the log decay inside each chunk, from natural log per token to base 2.

    y[i] = sum over j <= i in the chunk of max(x[j] log2 e, -126)

The clamp keeps one reset (a log decay of -3e37, say) from ruining the differences y[i] - y[j] of every later
row in float32: 2^-126 is already the least normal number. Where it clamps, the gradient is 0.
"""

import math

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div

LOG2_E = math.log2(math.e)
LOWEST = -126.0

CONTRACT = Contract(
    inputs={"x": Port("B T HV", F32, unit="log_decay/ln/token", where="<= 0")},
    outputs={"y": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)")},
    flops="2 * B * T * HV",
)


def reference(x, *, C):
    """x, y [B, T, HV]."""
    steps = torch.clamp(x * LOG2_E, min=LOWEST)
    chunks = [part.cumsum(dim=1) for part in steps.split(C, dim=1)]
    return {"y": torch.cat(chunks, dim=1)}


def vjp(d_y, x, *, needs, C):
    """dx = log2 e * sum of dy from this row to the chunk's end (summed from the end), 0 where x was clamped."""
    d_steps = torch.cat([part.flip(1).cumsum(dim=1).flip(1) for part in d_y.split(C, dim=1)], dim=1)
    kept = x * LOG2_E >= LOWEST
    return {"x": torch.where(kept, LOG2_E * d_steps, 0.0)}


def configs(axes, device):
    return [{"BN": 16, "num_warps": 2, "num_stages": 1}]


def launch(x, y, *, C, seqs, config):
    from ..kernels.chunk_local_cumsum import chunk_local_cumsum_kernel

    return [_over_chunks(chunk_local_cumsum_kernel, dict(x=x, y=y), x, C, seqs, config)]


def vjp_launch(d_y, x, d_x, *, C, seqs, config):
    from ..kernels.chunk_local_cumsum import chunk_local_cumsum_vjp_kernel

    return [_over_chunks(chunk_local_cumsum_vjp_kernel, dict(d_y=d_y, x=x, d_x=d_x), x, C, seqs, config)]


def _over_chunks(kernel, tensors, x, C, seqs, config):
    B, T, HV = x.shape
    return Launch(
        kernel,
        grid=(B * seqs.NT * ceil_div(HV, config["BN"]),),
        args=dict(**tensors, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, HV=HV),
        constexprs=dict(K=1, C=C, BN=config["BN"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


LAUNCHERS = [Launcher("triton", launch, configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, configs)]
