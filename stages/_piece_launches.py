"""Launches of a scan over pieces of a sequence: their starts, the states that enter those without, the scan itself."""

from dataclasses import replace

from ._contract import Launch, ceil_div
from ._forgotten import FORGOTTEN
from ._piece_starts import WINDOW
from ._pieces import PROGRAMS, SLICE
from ._tiles import padded, precision


def entering(k, v, beta, Ai, g, initial_state, starts, maps, passed, entered, *, C):
    """(the launches that find starts and fill entered, what a scan over pieces takes for starts: None without g)."""
    starts = None if g is None else starts
    found = [] if g is None else [starts_launch(k, beta, g, starts, C=C)]
    passes = passes_launch(k, v, beta, Ai, g, initial_state, starts, maps, passed, C=C)
    return [*found, passes, chain_launch(starts, maps, passed, entered, io=k.dtype)], starts


def entering_reverse(scan, k, beta, Ai, g, d_o, starts, maps, passed, entered, *, C):
    """The same for the reverse scan, which is launched for what leaves pieces too."""
    starts = None if g is None else starts
    found = [] if g is None else [starts_launch(k, beta, g, starts, C=C, reverse=True)]
    pieces = entered.shape[1]
    alone = dict(starts=starts, passed=passed, pieces=pieces, d_x=None, d_s=None, d_initial_state=None)
    return [
        *found,
        passes_launch(k, d_o, beta, Ai, g, None, starts, maps, None, C=C),
        replace(scan, grid=(scan.grid[0] * pieces,), args={**scan.args, **alone}),
        chain_launch(starts, maps, passed, entered, io=k.dtype, reverse=True),
    ], starts


def over_pieces(scan, starts, entered):
    """A launch for Hopper of whole sequences, over their pieces side by side."""
    pieces = entered.shape[1]
    args = {**scan.args, "starts": starts, "entered": entered, "pieces": pieces}
    return replace(scan, grid=(scan.grid[0] * pieces,), args=args)


def starts_launch(k, beta, g, starts, *, C, reverse=False):
    from ..kernels.piece_starts import piece_starts_kernel

    _, T, H, K = k.shape
    N, pieces, HV = starts.shape
    return Launch(
        piece_starts_kernel,
        grid=(N * pieces * HV,),
        args=dict(k=k, beta=beta, g=g, starts=starts, T=T, H=H, HV=HV, pieces=pieces),
        constexprs=dict(K=K, C=C, BK=padded(K), BW=8, WINDOW=WINDOW, FORGOTTEN=FORGOTTEN, REVERSE=reverse),
        num_warps=16,
        num_stages=1,
    )


def passes_launch(k, v, beta, Ai, g, initial_state, starts, maps, passed, *, C):
    """M and H of the pieces whose next one needs them; without passed M alone, of those that a reverse scan needs."""
    from ..kernels.chunk_delta_pieces_sm90 import chunk_delta_pieces_sm90_kernel

    (N, T, H, K), (HV, V), pieces = k.shape, v.shape[2:], maps.shape[1]
    return Launch(
        chunk_delta_pieces_sm90_kernel,
        grid=(N * (pieces - 1) * HV * (K if passed is None else K + V) // SLICE,),
        args=dict(
            k=k, v=v, beta=beta, Ai=Ai, g=g, initial_state=initial_state, starts=starts, maps=maps, passed=passed,
            T=T, H=H, HV=HV, pieces=pieces,
        ),
        constexprs=dict(K=K, V=V, C=C, BV=SLICE, STAGES=2, W=4),
        num_warps=4,
        num_stages=2,
    )  # fmt: skip


def chain_launch(starts, maps, passed, entered, *, io, reverse=False):
    from ..kernels.chain_pieces import chain_entered_kernel

    (N, pieces, HV, K, V), BV = passed.shape, 16
    return Launch(
        chain_entered_kernel,
        grid=(N * HV * ceil_div(V, BV),),
        args=dict(starts=starts, maps=maps, passed=passed, entered=entered, count=pieces, HV=HV),
        constexprs=dict(
            K=K, V=V, BK=min(64, padded(K)), BV=BV, BP=padded(PROGRAMS), PRECISION=precision(io), REVERSE=reverse
        ),
        num_warps=4,
        num_stages=2,
    )
