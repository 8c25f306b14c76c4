"""Segments of few heads, cut into pieces that run side by side (_pieces.py): what the whole does follows from those.

Under the delta rule the pieces' maps are made for that, which is as much work again: it pays from FEWEST pieces on.
Decays cost nothing. What a piece has forgotten when it ends is left out of each (_forgotten.py). fp16 is not cut under
the delta rule: maps are chained in tf32, which has fewer digits than a product of fp16 numbers.
"""

import torch

from ._contract import F32, INT, Launch, Port, ceil_div
from ._pieces import chain, pieces, whole
from ._tiles import padded, state_limits

FEWEST = 4

FORGOTTEN = {"forgotten": Port("N PIECES HV", INT, doc="chunks of each piece that it has forgotten when it ends")}
PASSED = {"passed": Port("N PIECES HV K V", F32, doc="the state that each piece leaves by itself")}
OF_MAPS = {
    "maps": Port("N PIECES HV K K", F32, doc="the map of each piece"),
    **PASSED,
    "entered": Port("N PIECES HV K V", F32, doc="the state that enters each piece"),
}
OF_DECAYS = {"decays": Port("N PIECES HV K", F32, doc="the decay of each piece"), **PASSED}


def segment_limits(axes, device):
    """None, or why a segment that goes in one piece leaves these sizes to those that are cut."""
    found = pieces(axes)
    many = f"T = {axes['T']} and HV = {axes['HV']}: the segment goes in {found} pieces"
    return state_limits(axes, device) or (many if found >= FEWEST else None)


def segment_pieces_limits(axes, device):
    """None, or why a segment is not cut at these sizes."""
    found = pieces(axes)
    few = f"T = {axes['T']} and HV = {axes['HV']} make {found} pieces: they pay from {FEWEST} on"
    return state_limits(axes, device) or (few if found < FEWEST else None)


def uncut(k, seqs):
    """Whether a segment with a map goes in one piece for what it is, whatever its sizes."""
    return whole(k, seqs) or k.dtype == torch.float16


def of_sequences(scratch):
    """Room for pieces, one after the other; its first rows are room for as many sequences."""
    return scratch.flatten(0, 1)


def through_maps(maps, passed, first, entered, last, map, count, *, io, reverse=False):
    """The state that the last piece leaves, and the map of all of them; what nobody asked for is left out."""
    found = []
    if last is not None:
        found.append(chain(maps, passed, first, entered, last, count, io=io, reverse=reverse))
    if map is not None:
        found.append(chain(maps, None, None, None, map, count, io=io))
    return found


def through_decays(decays, passed, first, last, count, *, reverse=False):
    """The state that the last piece leaves."""
    from ..kernels.chain_decays import chain_decays_kernel

    (N, _, HV, K, V), BV = passed.shape, 16
    return Launch(
        chain_decays_kernel,
        grid=(N * HV * ceil_div(V, BV),),
        args=dict(decays=decays, passed=passed, first=first, last=last, count=count, HV=HV),
        constexprs=dict(K=K, V=V, BK=min(64, padded(K)), BV=BV, REVERSE=reverse),
        num_warps=4,
        num_stages=2,
    )
