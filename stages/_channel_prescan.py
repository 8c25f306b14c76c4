"""Chunk sums of a gate per channel and the scores under them, in one kernel on Hopper: limits, sizes, launches."""

from . import chunk_local_cumsum_k
from ._contract import Launch
from ._tiles import chunk_limits

PROGRAMS = 132
"""As many as there are multiprocessors, each of which holds one: they go from chunk to chunk."""

NOT_IN = {"fp32": "the kernel's products are of 16 bits"}


def hopper_limits(axes, device):
    """None, or why the kernel that is written for Hopper refuses these sizes."""
    if device != "sm_90":
        return f"{device}: it is written for sm_90"
    for name, size in (("K", 128), ("C", 64)):
        if axes[name] != size:
            return f"{name} = {axes[name]}: on {device} {size}"
    if axes["HV"] == 0:  # rows of q and k that it normalises would stay unwritten
        return "HV = 0: its programs are of value heads"
    return None


def apart_limits(axes, device):
    """The same for the two kernels one after the other. On Hopper that is what the stages apart are."""
    return f"{device}: no faster than the stages apart" if device == "sm_90" else chunk_limits(axes, device)


def hopper_configs(axes, device):
    return [{"num_warps": 8, "num_stages": 1}]


def hopper_launch(kernel, tensors, x, H, *, C, scale, seqs, config):
    """For every chunk and value head."""
    B, T, HV, K = x.shape
    count = B * seqs.NT * HV
    return Launch(
        kernel,
        grid=(min(PROGRAMS, count),),
        args=dict(
            x=x, **tensors, scale=scale, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
            T=T, NT=seqs.NT, H=H, HV=HV, COUNT=count,
        ),
        constexprs=dict(K=K, C=C),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip


def delta_launch(x, H, *, C, scale, seqs, config, **tensors):
    """With eps on queries and keys that it normalises before that, with A_log on decays of which x is what they are
    made from."""
    from ..kernels.kda_prescan_sm90 import kda_prescan_sm90_kernel

    tensors = dict.fromkeys(("eps", "qn", "kn", "A_log", "dt_bias")) | tensors
    return [hopper_launch(kda_prescan_sm90_kernel, tensors, x, H, C=C, scale=scale, seqs=seqs, config=config)]


def sums_launch(x, y, *, C, seqs):
    """The sums alone, as their own stage makes them."""
    [config] = chunk_local_cumsum_k.configs({"C": C}, "")
    return chunk_local_cumsum_k.launch(x, y, C=C, seqs=seqs, config=config)
