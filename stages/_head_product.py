"""The launch of a product with a matrix of each head."""

from ._contract import Launch, ceil_div
from ._tiles import by_dtype, precision


def product_configs(axes, device):
    shared = {"BM_F32": 32, "BA": 64, "BA_F32": 32, "BC": 64, "BC_F32": 32, "num_stages_F32": 1}
    return [{"BM": BM, "num_warps": 4, "num_stages": stages, **shared} for BM, stages in ((128, 3), (64, 3))]


def head_product(x, w, y, config, turned=False):
    """y [B, S, HQ, C] = x [B, S, HQ, A], or x [B, S, A] for every head, times w [HQ, A, C] ([HQ, C, A] if turned)."""
    from ..kernels.head_product import head_product_kernel

    B, S, HQ, C = y.shape
    A, rows = x.shape[-1], B * S
    BM, BC = by_dtype(config, "BM", x.dtype), by_dtype(config, "BC", x.dtype, C)
    return Launch(
        head_product_kernel,
        grid=(ceil_div(rows, BM) * ceil_div(C, BC) * HQ,),
        args=dict(x=x, w=w, y=y, rows=rows, HX=1 if x.dim() == 3 else HQ, HQ=HQ),
        constexprs=dict(
            A=A, C=C, BM=BM, BA=by_dtype(config, "BA", x.dtype, A), BC=BC, TURNED=turned, PRECISION=precision(x.dtype)
        ),
        num_warps=config["num_warps"],
        num_stages=by_dtype(config, "num_stages", x.dtype),
    )
