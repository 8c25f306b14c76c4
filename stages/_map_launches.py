"""Launches of the kernels that expressions in edges become: elementwise over a result, gradients with sums.

The result is a matrix of rows and columns; ``segments`` says which of its axes make up each factor of it, the columns
last. An operand that lacks some is read again for each of their places, and its gradient is the sum over them.
"""

import math

from ._contract import Launch, ceil_div
from ._middle_sums import middle_sum


def map_configs(axes, device):
    return [{"BLOCK": 2048, "num_warps": 4, "num_stages": 1}]


def map_launch(kernel, tensors, scalars, result, segments, config):
    """tensors: the kernel's pointers by name. result: a tensor of the result's shape."""
    sizes = segment_sizes(result, segments)
    rows, cols = math.prod(sizes[:-1]), sizes[-1]
    BC = block(cols, config["BLOCK"])
    BR = block(rows, config["BLOCK"] // BC)
    return Launch(
        kernel,
        grid=(ceil_div(rows, BR) * ceil_div(cols, BC),),
        args=dict(**tensors, **scalars, rows=rows, cols=cols, **middle_sizes(sizes)),
        constexprs=dict(BR=BR, BC=BC),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


def map_vjp_launches(kernel, tensors, scalars, result, segments, sums, tail, seqs, config):
    """sums: operand -> (gradient or None, [terms, parts, total, parts, ...], which segments it has). tail: the place of
    the axis that sequences are packed along, and whether it counts chunks; None where there is none."""
    sizes = segment_sizes(result, segments)
    rows, cols = math.prod(sizes[:-1]), sizes[-1]
    by_row = any(not has[-1] for _, _, has in sums.values())
    BC = block(cols, 256 if by_row else config["BLOCK"])
    BR = block(rows, config["BLOCK"] // BC)
    targets = {f"sum_{name}": None if d is None else (scratch or [d])[0] for name, (d, scratch, _) in sums.items()}
    first = Launch(
        kernel,
        grid=(ceil_div(rows, BR) * (1 if by_row else ceil_div(cols, BC)),),
        args=dict(
            **tensors, **targets, **scalars, rows=rows, cols=cols, **middle_sizes(sizes),
            **(ends(result, tail, seqs) if sums else {}),
        ),
        constexprs=dict(BR=BR, BC=BC),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
    further = [launch for each in sums.values() for launch in sums_of(*each, sizes)]
    return [first, *further]


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


def sums_of(d, scratch, has, sizes):
    """Sums over the segments that an operand lacks, from the last to the first. The kernel has added up the columns."""
    if d is None or not scratch:
        return []
    left = list(zip(sizes, has))
    if not has[-1]:
        left.pop()
    x, *buffers = scratch
    launches = []
    while missing := [at for at, (_, there) in enumerate(left) if not there]:
        at = missing[-1]
        before, after = (math.prod(size for size, _ in part) for part in (left[:at], left[at + 1 :]))
        parts, *buffers = buffers
        total = d if len(missing) == 1 else buffers.pop(0)
        launches += middle_sum(x, parts, total, before, left[at][0], after)
        x = total
        left.pop(at)
    return launches
