"""The launches that add up partial results, for stages that split a sum over programs."""

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


def group_sums(heads, total, block=1024):
    """total [..., H, K] = heads [..., HV, K] added in order over each group of HV / H value heads."""
    from ..kernels.group_sums import group_sums_kernel

    n = total.numel()
    return Launch(
        group_sums_kernel,
        grid=(ceil_div(n, block),),
        args=dict(parts=heads, total=total, n=n, group=heads.shape[-2] // total.shape[-2]),
        constexprs=dict(K=total.shape[-1], BLOCK=block),
    )
