"""The exchange of a sequence that is cut across ranks: of each rank's x, the rows of what crosses the cut.

    all_gather   y[r] = rank r's x
    pass_on      y[0] = x of the rank before, or after; 0 where there is none

and of what every rank needs whole, the rows of all ranks one after another, and back:

    all_gather       y = the rows of rank 0, of rank 1, ..
    reduce_scatter   y = of the sum of all ranks' x, the rows of this rank

The runner makes the contract for what is exchanged, and hands the reference the process group.
"""

from dataclasses import replace

import torch

from ._contract import F32, Contract, Port

LAST = []
"""The two works that gloo's threads did last. A thread lets go of its work a moment after that is done, and must not be
the last to: for the tensors in it, it would wait for a Python that may be ending by then, which aborts the process."""


def collective(y, x, group):
    """PyTorch's all-gather into one tensor, under its name of 2.13 or the one before."""
    distributed = torch.distributed
    gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    together(gather, y, x, group)


def reduction(y, x, group):
    """PyTorch's reduce-scatter of one tensor, under its name of 2.13 or the one before."""
    distributed = torch.distributed
    scatter = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
    together(scatter, y, x, group)


def together(run, y, x, group):
    """A collective of all ranks; over gloo its work is held."""
    work = run(y, x, group=group, async_op=over_gloo(group))
    if work is not None:
        finish([work], group)


def finish(works, group):
    for work in works:
        work.wait()
    if over_gloo(group):
        LAST[:] = [*LAST[-1:], works]


def over_gloo(group):
    return torch.distributed.get_backend(group) == "gloo"


def contract(rows: dict[str, str], units: dict[str, str]) -> Contract:
    """rows: what is exchanged -> the axes of one sequence's row of it, as ``HV K V``. units: by the same names."""
    inputs = {name: Port(f"N {shape}", F32, unit=units[name]) for name, shape in rows.items()}
    outputs = {f"{name}s": Port(f"RANKS LANES {shape}", F32, unit=units[name]) for name, shape in rows.items()}
    return Contract(inputs, outputs, across=True)


def rows_contract(ports: dict[str, Port], axis: str, whole: str, scatter: bool) -> Contract:
    """ports: what is exchanged, with a rank's rows along ``axis``; those of all ranks are ``<port>s``, along ``whole``.
    Shares of a sum are float32."""
    all_rows = {
        f"{name}s": replace(
            port,
            shape=" ".join(whole if each == axis else each for each in port.axes),
            dtype=F32 if scatter else port.dtype,
        )
        for name, port in ports.items()
    }
    return Contract(*((all_rows, ports) if scatter else (ports, all_rows)), across=True)


def gathered_rows(x, group, dim, rows):
    """x with a rank's rows along dim -> those of all ranks. rows: of each rank."""
    mine = x.movedim(dim, 0).contiguous()
    longest, shape = max(rows), mine.shape[1:]
    y = mine.new_empty(len(rows) * longest, *shape)
    collective(y, with_room(mine, longest), group)
    if min(rows) < longest:
        y = torch.cat([part[:own] for part, own in zip(y.split(longest), rows)]) if longest else y
    return y.movedim(0, dim)


def scattered_rows(x, group, dim, rows, rank):
    """x with the rows of all ranks along dim, a share of a sum from each -> the sum's rows of this rank."""
    shares = x.movedim(dim, 0)
    longest = max(rows)
    if min(rows) < longest:
        shares = torch.cat([with_room(part, longest) for part in shares.split(rows)])
    y = shares.new_empty(longest, *shares.shape[1:])
    reduction(y, shares.contiguous(), group)
    return y[: rows[rank]].movedim(0, dim)


def with_room(x, rows):
    """x with as many rows, those that it does not have being 0: every rank sends as much."""
    return x if len(x) == rows else torch.cat([x, x.new_zeros(rows - len(x), *x.shape[1:])])


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
    there = [distributed.P2POp(run, tensor, peer, group) for run, tensor, peer in pairs if peer is not None]
    finish(distributed.batch_isend_irecv(there), group)
    return y[None]
