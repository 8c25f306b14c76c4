"""The launches that add up one axis of a tensor, for gradients of what was broadcast along it."""

from ._contract import Launch, ceil_div

PARTS = 64


def middle_sum(x, parts, total, before, length, after):
    """total [before, after] = the sum of x [before, length, after] over its middle, in one fixed order.

    parts [before, PARTS, after], float32: sums of every PARTS-th block of 32; a second kernel adds them.
    """
    from ..kernels.middle_sums import add_middle_parts_kernel, middle_sums_kernel

    block = 32
    columns = ceil_div(after, block)
    first = Launch(
        middle_sums_kernel,
        grid=(before * PARTS * columns,),
        args=dict(x=x, parts=parts, length=length, after=after),
        constexprs=dict(P=PARTS, BT=32, BH=block),
        num_stages=1,
    )
    second = Launch(
        add_middle_parts_kernel,
        grid=(before * columns,),
        args=dict(parts=parts, total=total, after=after),
        constexprs=dict(P=PARTS, BH=block),
        num_stages=1,
    )
    return [first, second]
