"""What comes in over the cut: the maps of the ranks between, applied one after the other."""

import torch

from ._contract import F32, Launch, Port, ceil_div
from ._tiles import padded

INPUTS = {
    "maps": Port("RANKS LANES HV K K", F32, unit="segment/map", optional=True),
    "decays": Port("RANKS LANES HV K", F32, unit="segment/decay", where="0..1", optional=True),
}
"""The maps, or decays where those are diagonal. Neither: the count is at most 1, and no map is passed."""


def merged(maps, decays, states, ranks, *, reverse):
    """states [RANKS, LANES, HV, K, V] of these ranks in order, each but the first after what came so far has passed its
    map; the transposed one in reverse."""
    total = torch.zeros_like(states[:1]).sum(0)
    for place, rank in enumerate(ranks):
        if place and maps is not None:
            total = (maps[rank].mT if reverse else maps[rank]) @ total
        elif place and decays is not None:
            total = decays[rank].unsqueeze(-1) * total
        total = total + states[rank]
    return total


SCRATCH = {"passed": Port("2 LANES HV K V", F32, doc="what came so far, before and after a map")}


def merge_configs(axes, device):
    """BK rows of a state in one tile; a map goes through BM by BK numbers at a time, which leaves registers free."""
    return [{"BK": min(128, padded(axes["K"])), "BV": 16, "BM": 32, "num_warps": 4, "num_stages": 2}]


def merge_launches(maps, decays, states, own, y, passed, *, first, count, reverse, config):
    """y = own, and in the lanes what comes in from ``count`` ranks, the ``first`` one farthest away. Of maps, a launch
    each: every one needs all of what came so far."""
    LANES, N = states.shape[1], y.shape[0]
    lane = N - LANES if reverse else 0
    if maps is None or count < 2:
        return [merge_launch(decays, states, own, y, first, count, lane, reverse, config)]
    order = range(first, first - count, -1) if reverse else range(first, first + count)
    launches, x, first_in = [merge_launch(None, states, own, y, 0, 0, lane, reverse, config)], states, first * LANES
    for place, rank in enumerate(order[1:], 1):
        last = place == count - 1
        to, first_out = (y, lane) if last else (passed, place % 2 * LANES)
        launches.append(pass_launch(maps, states, x, to, rank * LANES, first_in, first_out, last, reverse, config))
        x, first_in = to, first_out
    return launches


def merge_launch(decays, states, own, y, first, count, lane, reverse, config):
    from ..kernels.merge_segments import merge_segments_kernel

    (_, LANES, HV, K, V), N, BV = states.shape, y.shape[0], config["BV"]
    return Launch(
        merge_segments_kernel,
        grid=(N * HV * ceil_div(V, BV),),
        args=dict(
            decays=decays, states=states, own=own, y=y, first=first, count=count, LANES=LANES, lane=lane, HV=HV
        ),
        constexprs=dict(K=K, V=V, BK=config["BK"], BV=BV, REVERSE=reverse),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip


def pass_launch(maps, states, x, y, first_map, first_in, first_out, added, reverse, config):
    """One map, of all lanes."""
    from ..kernels.merge_segments import pass_map_kernel

    (_, LANES, HV, K, V), BM = states.shape, config["BM"]
    return Launch(
        pass_map_kernel,
        grid=(LANES * HV * ceil_div(K, BM) * ceil_div(V, BM),),
        args=dict(
            maps=maps, states=states, x=x, y=y, first_map=first_map, first_in=first_in, first_out=first_out, HV=HV
        ),
        constexprs=dict(K=K, V=V, BM=BM, BK=BM, BV=BM, REVERSE=reverse, ADDED=added),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
