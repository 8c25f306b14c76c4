"""Launches of the kernels that expressions in edges become: elementwise over a result, gradients with sums.

The result is a matrix of rows and columns; ``segments`` says which of its axes make up each factor of it, the columns
last. An operand that lacks some is read again for each of their places, and its gradient is the sum over them.
"""

import math

from ._contract import Launch, ceil_div
from ._middle_sums import middle_sum


def map_configs(axes, device):
    return [{"BLOCK": 1024, "num_warps": 4, "num_stages": 1}]


def map_vjp_configs(axes, device):
    return [{"BLOCK": 512, "num_warps": 4, "num_stages": 1}]


def map_launch(kernel, tensors, scalars, result, segments, fixed, config):
    """tensors: the kernel's pointers by name. result: a tensor of the result's shape. fixed: whether the kernel is
    compiled for its number of columns."""
    sizes = segment_sizes(result, segments)
    rows, cols = math.prod(sizes[:-1]), sizes[-1]
    BC = block(cols, config["BLOCK"])
    BR = block(rows, config["BLOCK"] // BC)
    return Launch(
        kernel,
        grid=(ceil_div(rows, BR) * ceil_div(cols, BC),),
        args=dict(**tensors, **scalars, rows=rows, **({} if fixed else {"cols": cols}), **middle_sizes(sizes)),
        constexprs=dict(**({"cols": cols} if fixed else {}), BR=BR, BC=BC),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


def map_vjp_launches(kernel, tensors, scalars, result, segments, fixed, sums, by_row, tail, seqs, config):
    """sums: operand -> (gradient or None, [terms, then buffers of further sums], what further sums there are, as
    (places of the result before, those summed over, places after, whether it is split)). by_row: whether some operand
    lacks the columns. tail: the place of the axis that sequences are packed along, and whether it counts chunks."""
    sizes = segment_sizes(result, segments)
    rows, cols = math.prod(sizes[:-1]), sizes[-1]
    BC = block(cols, 256 if by_row else config["BLOCK"])
    BR = block(rows, max(1, config["BLOCK"] // BC))
    targets = {f"sum_{name}": None if d is None else (scratch or [d])[0] for name, (d, scratch, _) in sums.items()}
    first = Launch(
        kernel,
        grid=(ceil_div(rows, BR) * (1 if by_row else ceil_div(cols, BC)),),
        args=dict(
            **tensors, **targets, **scalars, rows=rows, **({} if fixed else {"cols": cols}), **middle_sizes(sizes),
            **(ends(result, tail, seqs) if sums else {}),
        ),
        constexprs=dict(**({"cols": cols} if fixed else {}), BR=BR, BC=BC),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
    return [first, *(launch for each in sums.values() for launch in sums_of(*each, result))]


def segment_sizes(result, segments):
    return [math.prod(result.shape[place] for place in group) for group in segments]


def middle_sizes(sizes):
    """Sizes of the segments between the first and the columns, whose places a row's number is taken apart into."""
    return {f"n{at}": size for at, size in enumerate(sizes) if 0 < at < len(sizes) - 1}


def block(size, most):
    """A power of two that holds size, or most."""
    return max(1, min(most, 1 << (max(size, 1) - 1).bit_length()))


def ends(result, tail, seqs):
    """Where the last sequence ends, for sums that leave out what lies past it."""
    if tail is None:
        return dict(ends=None, N=1, inner=1, length=1)
    place, chunks = tail
    found = seqs.chunk_offsets if chunks else seqs.cu_seqlens
    return dict(ends=found, N=seqs.N, inner=math.prod(result.shape[place + 1 :]), length=result.shape[place])


def sums_of(d, scratch, further, result):
    """The sums that an operand's gradient still needs, each over one run of the result's places."""
    if d is None or not further:
        return []
    terms, *buffers = scratch
    launches = []
    for at, (*places, split) in enumerate(further):
        parts = buffers.pop(0) if split else None
        total = buffers.pop(0) if at + 1 < len(further) else d
        sizes = (math.prod(result.shape[place] for place in part) for part in places)
        launches += middle_sum(terms, parts, total, *sizes)
        terms = total
    return launches
