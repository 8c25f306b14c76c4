"""The exchange of a sequence that is cut across ranks: of each rank's x, the rows of what crosses the cut.

    all_gather   y[r] = rank r's x
    pass_on      y[0] = x of the rank before, or after; 0 where there is none

The runner makes the contract for what is exchanged, and hands the reference the process group.
"""

import torch

from ._contract import F32, Contract, Port


def collective(y, x, group):
    """PyTorch's all-gather into one tensor, under its name of 2.13 or the one before."""
    distributed = torch.distributed
    gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    gather(y, x, group=group)


def contract(rows: dict[str, str], units: dict[str, str]) -> Contract:
    """rows: what is exchanged -> the axes of one sequence's row of it, as ``HV K V``. units: by the same names."""
    inputs = {name: Port(f"N {shape}", F32, unit=units[name]) for name, shape in rows.items()}
    outputs = {f"{name}s": Port(f"RANKS LANES {shape}", F32, unit=units[name]) for name, shape in rows.items()}
    return Contract(inputs, outputs, across=True)


def gathered(x, group, RANKS, LANES, last):
    """x [N, ...] of every rank: the last, or the first, LANES rows as [RANKS, LANES, ...]."""
    rows = (x[len(x) - LANES :] if last else x[:LANES]).contiguous()
    y = rows.new_empty(RANKS * LANES, *rows.shape[1:])
    collective(y, rows, group=group)
    return y.unflatten(0, (RANKS, LANES))


def passed_on(x, group, LANES, last, to, source):
    """x [N, ...] of the rank ``source``: its last, or first, LANES rows as [1, LANES, ...]; this rank's go to ``to``.
    Both are global ranks, None at the end of the group."""
    distributed = torch.distributed
    rows = (x[len(x) - LANES :] if last else x[:LANES]).contiguous()
    y = torch.zeros_like(rows)
    pairs = [(distributed.isend, rows, to), (distributed.irecv, y, source)]
    for work in distributed.batch_isend_irecv(
        [distributed.P2POp(run, tensor, peer, group) for run, tensor, peer in pairs if peer is not None]
    ):
        work.wait()
    return y[None]
