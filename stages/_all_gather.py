"""What every rank has, on every rank: the one exchange of a sequence that is cut across ranks.

    y[r] = rank r's x, the rows of the sequence that crosses the cut alone

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
