"""Pieces of a sequence under the delta rule that run side by side, each from where it has forgotten what came before.

What is in the state when chunk c begins is multiplied, until chunk n begins, by at most 2^L, L the sum of what the
chunks from c to n - 1 lose (_forgotten.py has the bound). Where L is at most FORGOTTEN nothing of it is left in
float32: a scan from chunk c with a state of zeros is from chunk n on that of the whole sequence, and a piece that
begins with chunk n is scanned from the last such c. That rests on Ai being what its unit says, the inverse of these
keys' matrix. A nan in g, beta or k forgets nothing; one in v is forgotten like any number.

Where none of the WINDOW chunks before a piece will do, as without g none does, the state that enters the piece is
chained from what pieces do to a state (_segment.py), by passes over these pieces alone:

    entered[p + 1] = M[p] entered[p] + H[p], or H[p] where piece p has a start: then that holds all that came before

A cotangent goes the other way, by M^T, forgets by the same bound and enters a piece from the end or a later chunk.
Both are decided on the device, for each piece by what comes before it.
"""

from functools import partial

import torch

from ._contract import F32, INT, Port, ceil_div
from ._decay import per_value_head
from ._forgotten import FORGOTTEN
from ._hopper import hopper_takes
from ._pieces import SLICE, at_once
from ._tiles import state_limits

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
    most = min(at_once(axes["HV"] * ceil_div(axes["V"], SLICE)), chunks // FEWEST_IN_PIECE)
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


def chunk_losses(k, beta, g, C):
    """[N, NT, HV]: k [N, T, H, K], beta, g [N, T, HV], g a chunk sum in log2."""
    ends = [*range(C, k.shape[1], C), k.shape[1]]
    norm = (1 - beta.float() * per_value_head(k.float().square().sum(-1, keepdim=True), beta.shape[2])[..., 0]).abs()
    grown = torch.where(norm <= 1, 1.0, norm).log2()
    return torch.stack([g[:, end - 1] + rows.sum(1) for end, rows in zip(ends, grown.split(C, 1), strict=True)], 1)


def piece_starts(k, beta, g, *, pieces, C, reverse=False):
    """[N, pieces, HV]: the chunk from which each piece is scanned, in reverse the one after it; -1: there is none."""
    losses = chunk_losses(k, beta, g, C)
    (N, chunks, HV), found = losses.shape, []
    losses = losses.flip(1) if reverse else losses
    for p in range(pieces):
        begin = chunks - (p + 1) * chunks // pieces if reverse else p * chunks // pieces
        start = torch.full((N, HV), begin if begin == 0 else -1, dtype=torch.int32, device=k.device)
        left = torch.zeros(N, HV, device=k.device)
        for c in range(begin - 1, max(begin - WINDOW, 0) - 1, -1):
            left = left + losses[:, c]
            start = torch.where((start < 0) & ((left <= FORGOTTEN) | (c == 0)), c, start)
        found.append(torch.where(start < 0, start, chunks - start) if reverse else start)
    return torch.stack(found, 1)
