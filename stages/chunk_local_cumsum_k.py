"""Sum of the log decay inside each chunk, channel by channel: chunk_local_cumsum with a gate per channel.

y[i] = sum over j <= i in the chunk of max(x[j] log2 e, -126)
"""

from . import chunk_local_cumsum
from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div

CONTRACT = Contract(
    inputs={"x": Port("B T HV K", F32, unit="log_decay/ln/token", where="<= 0")},
    outputs={"y": Port("B T HV K", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)")},
    flops="2 * B * T * HV * K",
)


def reference(x, *, C):
    """x, y [B, T, HV, K]."""
    return chunk_local_cumsum.reference(x, C=C)


def vjp(d_y, x, *, needs, C):
    """dx = log2 e * sum of dy from this row to the chunk's end (summed from the end), 0 where x was clamped."""
    return chunk_local_cumsum.vjp(d_y, x, needs=needs, C=C)


def configs(axes, device):
    return [{"BN": 4096 // axes["C"], "num_warps": 4, "num_stages": 1}]


def vjp_configs(axes, device):
    return [{"BN": 32, "num_warps": 2, "num_stages": 1}]


def launch(x, y, *, C, seqs, config):
    from ..kernels.chunk_local_cumsum import chunk_local_cumsum_kernel

    return [_over_channels(chunk_local_cumsum_kernel, dict(x=x, y=y), x, C, seqs, config)]


def vjp_launch(d_y, x, d_x, *, C, seqs, config):
    from ..kernels.chunk_local_cumsum import chunk_local_cumsum_vjp_kernel

    return [_over_channels(chunk_local_cumsum_vjp_kernel, dict(d_y=d_y, x=x, d_x=d_x), x, C, seqs, config)]


def _over_channels(kernel, tensors, x, C, seqs, config):
    """The kernel of a gate per head, over every channel."""
    B, T, HV, K = x.shape
    return Launch(
        kernel,
        grid=(B * seqs.NT * ceil_div(HV * K, config["BN"]),),
        args=dict(**tensors, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, HV=HV),
        constexprs=dict(K=K, C=C, BN=config["BN"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


LAUNCHERS = [Launcher("triton", launch, configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, vjp_configs)]
