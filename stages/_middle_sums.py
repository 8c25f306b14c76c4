"""The launches that add up one axis of a tensor, for gradients of what was broadcast along it."""

from ._contract import Launch, ceil_div

PARTS = 64


def middle_sum(x, parts, total, before, length, after):
    """total [before, after] = the sum of x [before, length, after] over its middle, in one fixed order.

    parts [before, PARTS, after], float32: sums of every PARTS-th block of 32, which a second kernel adds; None where
    one program adds up a middle alone.
    """
    from ..kernels.middle_sums import add_middle_parts_kernel, middle_sums_kernel

    block = 32
    columns, P = ceil_div(after, block), 1 if parts is None else PARTS
    target = total if parts is None else parts
    first = Launch(
        middle_sums_kernel,
        grid=(before * P * columns,),
        args=dict(x=x, parts=target, length=length, after=after),
        constexprs=dict(P=P, BT=32, BH=block),
        num_stages=1,
    )
    second = Launch(
        add_middle_parts_kernel,
        grid=(before * columns,),
        args=dict(parts=parts, total=total, after=after),
        constexprs=dict(P=PARTS, BH=block),
        num_stages=1,
    )
    return [first] if parts is None else [first, second]
