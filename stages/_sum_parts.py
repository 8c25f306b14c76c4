"""The launch that adds up partial results, for stages that split a sum over programs."""

from ._contract import Launch, ceil_div


def sum_parts(parts, total, count, block=1024):
    """total = the first ``count`` of ``parts`` added in order; parts [count or more, *total.shape], float32."""
    from ..kernels.sum_parts import sum_parts_kernel

    n = total.numel()
    return Launch(
        sum_parts_kernel,
        grid=(ceil_div(n, block),),
        args=dict(parts=parts, total=total, n=n),
        constexprs=dict(PARTS=count, BLOCK=block),
    )
