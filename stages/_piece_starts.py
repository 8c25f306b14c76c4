"""Pieces of a sequence under the delta rule that run side by side, each from where it has forgotten what came before.

A token multiplies the state by 2^g (I - beta k k^T), which makes no vector longer than by 2^g max(1, |1 - beta |k|^2|).
So what is in the state when chunk c begins is multiplied, until chunk n begins, by at most 2^L,

    L = sum over the chunks from c to n - 1 of g_C + sum over their tokens of log2 max(1, |1 - beta |k|^2|)

A column of a finite float32 state is shorter than 2^(128 + 4), for K up to 256. Where L is at most FORGOTTEN = -288,
not 2^-156 is left of it, nothing beside float32's least number, 2^-149; the binary digits between are more than L
loses by rounding. A scan from chunk c with a state of zeros is from chunk n on that of the whole sequence, and a piece
that begins with chunk n is scanned from the last such c. That rests on Ai being what its unit says, the inverse of
these keys' matrix. A nan in g, beta or k forgets nothing; one in v is forgotten like any number.

Where none of the WINDOW chunks before a piece will do, as without g none does, the state that enters the piece is
chained from what pieces do to a state (_segment.py), by passes over these pieces alone:

    entered[p + 1] = M[p] entered[p] + H[p], or H[p] where piece p has a start: then that holds all that came before

Both are decided on the device, for each piece by what comes before it.
"""

from dataclasses import replace
from functools import partial

import torch

from ._contract import F32, INT, Launch, Port, ceil_div
from ._decay import per_value_head
from ._hopper import hopper_takes
from ._pieces import PROGRAMS, SLICE
from ._tiles import padded, state_limits

FORGOTTEN = -288
WINDOW = 16
"""Chunks before a piece that its scan may start with: where it takes more, to chain is as fast."""
FEWEST_CHUNKS, FEWEST_IN_PIECE = 128, 16
"""What is not cut: shorter sequences, and pieces of which the chunks before them would be too large a part."""

SCRATCH = {
    "starts": Port("N PIECES HV", INT, doc="the chunk from which each piece is scanned; -1: entered is there"),
    "maps": Port("N PIECES HV K K", F32, doc="M of each piece"),
    "passed": Port("N PIECES HV K V", F32, doc="H of each piece"),
    "entered": Port("N PIECES HV K V", F32, doc="the state that enters each piece"),
}


def scan_pieces(axes):
    """A power of two: one sequence's programs are as many as the multiprocessors, or nearly. Never from the batch."""
    chunks = ceil_div(axes["T"], axes["C"])
    most = min(PROGRAMS // (axes["HV"] * ceil_div(axes["V"], SLICE)), chunks // FEWEST_IN_PIECE)
    return 1 if chunks < FEWEST_CHUNKS or most < 1 else 1 << (most.bit_length() - 1)


def goes_in_pieces(axes, device):
    """Whether a scan is cut at these sizes, where there is a kernel for it."""
    return hopper_takes(axes, device) and not state_limits(axes, device) and scan_pieces(axes) > 1


def unless_cut(limits):
    """Those of a scan of whole sequences."""
    return partial(whole_limits, limits)


def where_cut(limits):
    """Those of the scan that is cut."""
    return partial(cut_limits, limits)


def whole_limits(limits, axes, device):
    if goes_in_pieces(axes, device):
        return f"T = {axes['T']} and HV = {axes['HV']}: the scan goes in {scan_pieces(axes)} pieces"
    return limits(axes, device)


def cut_limits(limits, axes, device):
    if goes_in_pieces(axes, device):
        return None
    return limits(axes, device) or f"T = {axes['T']} and HV = {axes['HV']}: the scan goes in one piece"


def in_pieces(configs, **kernel):
    """The configurations of the kernel that takes pieces, with their number."""
    return partial(piece_configs, configs, kernel)


def piece_configs(configs, kernel, axes, device):
    taken = [each for each in configs(axes, device) if kernel.items() <= each.items()]
    return [{**each, "PIECES": scan_pieces(axes)} for each in taken]


def piece_starts(k, beta, g, *, pieces, C):
    """[N, pieces, HV]: k [N, T, H, K], beta, g [N, T, HV], g a chunk sum in log2."""
    (N, T, _, _), HV = k.shape, beta.shape[2]
    chunks = ceil_div(T, C)
    norm = (1 - beta.float() * per_value_head(k.float().square().sum(-1, keepdim=True), HV)[..., 0]).abs()
    grown = torch.where(norm <= 1, 1.0, norm).log2()
    found = torch.full((N, pieces, HV), -1, dtype=torch.int32, device=k.device)
    for p in range(pieces):
        begin = p * chunks // pieces
        left = torch.zeros(N, HV, device=k.device)
        if begin == 0:
            found[:, p] = 0
        for c in range(begin - 1, max(begin - WINDOW, 0) - 1, -1):
            left = left + g[:, (c + 1) * C - 1] + grown[:, c * C : (c + 1) * C].sum(1)
            here = (left <= FORGOTTEN) | (c == 0)
            found[:, p] = torch.where((found[:, p] < 0) & here, c, found[:, p])
    return found


def entering(k, v, beta, Ai, g, initial_state, starts, maps, passed, entered, *, C):
    """(the launches that find starts and fill entered, what a scan over pieces takes for starts: None without g)."""
    starts = None if g is None else starts
    found = [] if g is None else [starts_launch(k, beta, g, starts, C=C)]
    passes = passes_launch(k, v, beta, Ai, g, initial_state, starts, maps, passed, C=C)
    return [*found, passes, chain_launch(starts, maps, passed, entered)], starts


def over_pieces(scan, starts, entered):
    """A launch for Hopper of whole sequences, over their pieces side by side."""
    pieces = entered.shape[1]
    args = {**scan.args, "starts": starts, "entered": entered, "pieces": pieces}
    return replace(scan, grid=(scan.grid[0] * pieces,), args=args)


def starts_launch(k, beta, g, starts, *, C):
    from ..kernels.piece_starts import piece_starts_kernel

    _, T, H, K = k.shape
    N, pieces, HV = starts.shape
    return Launch(
        piece_starts_kernel,
        grid=(N * pieces * HV,),
        args=dict(k=k, beta=beta, g=g, starts=starts, T=T, H=H, HV=HV, pieces=pieces),
        constexprs=dict(K=K, C=C, BK=padded(K), BW=4, WINDOW=WINDOW, FORGOTTEN=FORGOTTEN),
        num_warps=8,
        num_stages=1,
    )


def passes_launch(k, v, beta, Ai, g, initial_state, starts, maps, passed, *, C):
    """M and H of the pieces whose next one needs them."""
    from ..kernels.chunk_delta_pieces_sm90 import chunk_delta_pieces_sm90_kernel

    (N, T, H, K), (HV, V), pieces = k.shape, v.shape[2:], maps.shape[1]
    return Launch(
        chunk_delta_pieces_sm90_kernel,
        grid=(N * (pieces - 1) * HV * (K + V) // SLICE,),
        args=dict(
            k=k, v=v, beta=beta, Ai=Ai, g=g, initial_state=initial_state, starts=starts, maps=maps, passed=passed,
            T=T, H=H, HV=HV, pieces=pieces,
        ),
        constexprs=dict(K=K, V=V, C=C, BV=SLICE, STAGES=2, W=4),
        num_warps=4,
        num_stages=2,
    )  # fmt: skip


def chain_launch(starts, maps, passed, entered):
    from ..kernels.chain_pieces import chain_entered_kernel

    (N, pieces, HV, K, V), BV = passed.shape, 16
    return Launch(
        chain_entered_kernel,
        grid=(N * HV * ceil_div(V, BV),),
        args=dict(starts=starts, maps=maps, passed=passed, entered=entered, count=pieces, HV=HV),
        constexprs=dict(K=K, V=V, BK=min(64, padded(K)), BV=BV, BP=padded(PROGRAMS)),
        num_warps=4,
        num_stages=2,
    )
