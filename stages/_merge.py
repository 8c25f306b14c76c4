"""What comes in over the cut: the maps of the ranks between, applied one after the other."""

import torch

from ._contract import F32, Launch, Port, ceil_div
from ._tiles import padded

INPUTS = {
    "maps": Port("RANKS LANES HV K K", F32, unit="segment/map", optional=True),
    "decays": Port("RANKS LANES HV K", F32, unit="segment/decay", where="0..1", optional=True),
}
"""Neither: the count is at most 1, and no map is passed."""


def merged(maps, decays, states, ranks, *, reverse):
    """states [RANKS, LANES, HV, K, V] of these ranks in order, each but the first after what came so far has passed its
    map; the transposed one in reverse."""
    total = torch.zeros_like(states[:1]).sum(0)
    for place, rank in enumerate(ranks):
        if place and decays is not None:
            total = decays[rank].unsqueeze(-1) * total
        elif place and maps is not None:
            total = (maps[rank].mT if reverse else maps[rank]) @ total
        total = total + states[rank]
    return total


def merge_configs(axes, device):
    """One tile of K rows up to 128: with two, the compiler keeps none of a map in registers."""
    BK = min(128, padded(axes["K"]))
    return [{"BK": BK, "BV": 16, "num_warps": 8 if BK == 128 else 4, "num_stages": 1}]


def merge_launch(maps, decays, states, own, y, *, first, count, reverse, config):
    """y = own, and in the lanes what comes in from ``count`` ranks, the ``first`` one farthest away."""
    from ..kernels.merge_segments import merge_segments_kernel

    (_, LANES, HV, K, V), N, BV = states.shape, y.shape[0], config["BV"]
    return Launch(
        merge_segments_kernel,
        grid=(N * HV * ceil_div(V, BV),),
        args=dict(
            maps=maps, decays=decays, states=states, own=own, y=y, first=first, count=count, LANES=LANES,
            lane=N - LANES if reverse else 0, HV=HV,
        ),
        constexprs=dict(K=K, V=V, BK=config["BK"], BV=BV, REVERSE=reverse),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
