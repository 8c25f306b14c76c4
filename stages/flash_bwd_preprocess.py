"""What the gradient of softmax attention needs of each query: delta = <o, do> - d_lse, and with it the sinks' gradient.

d_sink = - sum over the queries of exp(sink - lse) delta, 0 without sinks
"""

import torch

from . import flash_fwd
from ._contract import F32, Contract, Launcher, Port
from ._flash import preprocess
from ._head_sums import PARTS, head_sums

OUT = flash_fwd.CONTRACT.outputs
D_O = Port("B Sq HQ DV", optional=True, doc="gradient of the output")
CONTRACT = Contract(
    inputs={
        "d_o": D_O,
        "d_lse": Port("B Sq HQ", F32, unit="cotangent/lse/ln", optional=True),
        **OUT,
        "sinks": flash_fwd.CONTRACT.inputs["sinks"],
    },
    outputs={"delta": Port("B Sq HQ", F32), "d_sinks": Port("HQ", F32)},
    flops="2 * B * Sq * HQ * DV",
)
SCRATCH = {
    "terms": Port("B Sq HQ", F32, doc="each query's share of the sinks' gradient"),
    "parts": Port("P HQ", F32, doc="sums of every P-th block of them"),
}


def reference(d_o, d_lse, o, lse, sinks):
    """d_o, o [B, Sq, HQ, DV], d_lse, lse, delta [B, Sq, HQ], sinks [HQ]."""
    delta = torch.zeros_like(lse) if d_o is None else (o * d_o).sum(-1)
    delta = delta if d_lse is None else delta - d_lse
    weights = torch.zeros_like(lse) if sinks is None else torch.exp(sinks - lse)
    return {"delta": delta, "d_sinks": -(weights * delta).sum((0, 1))}


def configs(axes, device):
    return [{"P": PARTS, "BT": 32, "BH": 32, "num_warps": 4, "num_stages": 1}]


def launch(d_o, d_lse, o, lse, sinks, delta, d_sinks, terms, parts, *, seqs, config):
    terms = None if d_sinks is None else terms
    by_row = preprocess(d_o, d_lse, o, lse, sinks, delta, terms)
    return [by_row, *([] if d_sinks is None else head_sums(terms, parts, d_sinks, seqs, config))]


LAUNCHERS = [Launcher("triton", launch, configs, scratch=SCRATCH)]
