"""Long sequences of few heads: the scan over chunk states cut into pieces that run side by side.

A scan runs one program after another through all chunks for each head and slice of V; where these are few, the card
is idle. What a piece does to a state is S -> M S + H (_segment.py), so the pieces' maps M and states H are made side by
side, chained into the state that enters each piece, and the scan is run again from these, every piece by itself:

    E[0] = initial_state;  E[p + 1] = M[p] E[p] + H[p];  final_state = E[pieces]

Three times the work in NT / pieces steps each. The pieces of a sequence follow from T, HV, V and C alone, never from
the batch, so that a sequence keeps its bits in any batch. Packed sequences are not cut, nor is float32: its products
are no work for tensor cores, and a chain of them holds more than the registers do. The fused scans for Hopper have
pieces of their own (_piece_starts.py), most of which need but one pass.
"""

from dataclasses import replace
from functools import partial

from ._contract import F32, Launch, Port, ceil_div
from ._tiles import padded, precision, state_limits

PROGRAMS = 132
"""Pieces are made until so many programs run for one sequence."""
FEWEST_PIECES, FEWEST_CHUNKS = 8, 16
"""With fewer pieces three passes gain nothing; with fewer chunks in each, chaining costs more than they do."""
SLICE = 64
"""Values that one program of the scan owns."""

SCRATCH = {
    "maps": Port("N PIECES HV K K", F32, doc="M of each piece"),
    "passed": Port("N PIECES HV K V", F32, doc="H of each piece"),
    "entered": Port("N PIECES HV K V", F32, doc="the state that enters each piece"),
}


def at_once(programs):
    """How many times so many programs run side by side; no head or no value makes none."""
    return PROGRAMS // max(1, programs)


def pieces(axes):
    """A power of two that cuts T into pieces of whole chunks."""
    T, C = axes["T"], axes["C"]
    most = min(at_once(axes["HV"] * ceil_div(axes["V"], SLICE)), T // (C * FEWEST_CHUNKS))
    found = 1
    while 2 * found <= most and T % (2 * found * C) == 0:
        found *= 2
    return found


def piece_limits(axes, device):
    """None, or why a scan is not cut at these sizes."""
    found = pieces(axes)
    few = f"T = {axes['T']} and HV = {axes['HV']} make {found} pieces: three passes pay from {FEWEST_PIECES} on"
    return state_limits(axes, device) or (few if found < FEWEST_PIECES else None)


def one_piece_limits(axes, device):
    """None, or why a scan that goes in one piece leaves these sizes to those that are cut."""
    found = pieces(axes)
    many = f"T = {axes['T']} and HV = {axes['HV']}: the plain scan goes in {found} pieces"
    return state_limits(axes, device) or (many if found >= FEWEST_PIECES else None)


def in_pieces(configs):
    """The same configurations, with the number of pieces."""
    return partial(piece_configs, configs)


def piece_configs(configs, axes, device):
    return [{**config, "PIECES": pieces(axes)} for config in configs(axes, device)]


def whole(k, seqs):
    """Whether these sequences are scanned in one piece for what they are, whatever their sizes."""
    return seqs.packed or k.dtype.itemsize == 4


def cut(seqs, count):
    """The pieces of plain sequences as sequences: nothing in memory lies elsewhere for it."""
    return replace(seqs, N=seqs.N * count, T=seqs.T // count, NT=seqs.NT // count)


def chain(maps, passed, first, entered, last, count, *, io, reverse=False):
    """entered[p], and what the last piece leaves; in reverse from the last piece to the first, through M^T. Without
    passed, last is the map of all pieces. io: the dtype of the scan."""
    from ..kernels.chain_pieces import chain_pieces_kernel

    (N, _, HV, K, V), BV = (maps if passed is None else passed).shape, 16
    BK = min(64 if K <= 128 else 32, padded(K))
    return Launch(
        chain_pieces_kernel,
        grid=(N * HV * ceil_div(V, BV),),
        args=dict(maps=maps, passed=passed, first=first, entered=entered, last=last, count=count, HV=HV),
        constexprs=dict(K=K, V=V, BK=BK, BV=BV, PRECISION=precision(io), REVERSE=reverse),
        num_warps=4,
        num_stages=2 if K <= 128 else 1,
    )
