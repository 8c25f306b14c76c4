"""A cache in eight bits as the pipeline's dtype has it: each number times the scale of its row and head."""

from ._contract import Q8, Contract, Launch, Launcher, Port, ceil_div
from ._eight_bits import SCALE, as_bytes, dequantized
from ._tiles import padded

CONTRACT = Contract(
    inputs={"x": Port("PAGES PAGE H D", Q8), "scale": SCALE},
    outputs={"y": Port("PAGES PAGE H D")},
    flops="PAGES * PAGE * H * D",
)


def reference(x, scale):
    """x [PAGES, PAGE, H, D], scale [PAGES, PAGE, H]."""
    return {"y": dequantized(x, scale)}


def vjp(d_y, x, *, needs):
    """d scale = sum over D of dy x."""
    return {"scale": (d_y * x.to(d_y.dtype)).sum(-1)} if "scale" in needs else {}


def configs(axes, device):
    BD = padded(axes["D"])
    return [{"BD": BD, "BR": max(1, 4096 // BD), "num_warps": 4, "num_stages": 1}]


def launch(x, scale, y, *, seqs, config):
    from ..kernels.dequant import dequant_kernel

    rows = scale.numel()
    return [
        Launch(
            dequant_kernel,
            grid=(ceil_div(rows, config["BR"]),),
            args=dict(x=as_bytes(x), scale=scale, y=y, rows=rows),
            constexprs=dict(D=x.shape[-1], BD=config["BD"], BR=config["BR"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


LAUNCHERS = [Launcher("triton", launch, configs)]
