"""The outputs of an op with, added to them, what went in times one weight per value head.

    o = y + weight x
"""

from ._contract import F32, Contract, Launcher, Port
from ._head_sums import PARTS, SCRATCH, head_sums
from ._rows import over_rows, row_configs

CONTRACT = Contract(
    inputs={"y": Port("B T HV V"), "x": Port("B T HV V"), "weight": Port("HV", F32)},
    outputs={"o": Port("B T HV V")},
    flops="2 * B * T * HV * V",
)


def reference(y, x, weight):
    """y, x, o [B, T, HV, V]; weight [HV]."""
    return {"o": y + weight[:, None] * x}


def vjp(d_o, x, weight, *, needs):
    """dy = do; dx = weight do; d weight = sum over B, T and V of do x."""
    gradients = {"y": d_o, "x": weight[:, None] * d_o, "weight": (d_o * x).sum(dim=(0, 1, 3))}
    return {name: gradients[name] for name in gradients if name in needs}


def launch(y, x, weight, o, *, seqs, config):
    from ..kernels.skip import skip_kernel

    return [over_rows(skip_kernel, dict(y=y, x=x, weight=weight, o=o), x, config)]


def vjp_configs(axes, device):
    return [{**each, "P": PARTS, "BT": 32, "BH": 32} for each in row_configs(axes, device)]


def vjp_launch(d_o, x, weight, d_y, d_x, d_weight, terms, parts, *, seqs, config):
    from ..kernels.skip import skip_vjp_kernel

    terms = None if d_weight is None else terms
    by_row = over_rows(skip_vjp_kernel, dict(d_o=d_o, x=x, weight=weight, d_y=d_y, d_x=d_x, terms=terms), x, config)
    return [by_row, *([] if d_weight is None else head_sums(terms, parts, d_weight, seqs, config))]


LAUNCHERS = [Launcher("triton", launch, row_configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, vjp_configs, scratch=SCRATCH)]
