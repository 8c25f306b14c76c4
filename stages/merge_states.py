"""Attention over two sets of keys, from the output and the log-sum-exp over each.

    lse = log(exp(lse_a) + exp(lse_b))    o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b

Nothing seen in either gives (0, -inf); nothing seen in one gives the other, whatever the first one's output holds.
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._tiles import padded

LSE = Port("B Sq HQ", F32, unit="lse/ln")
CONTRACT = Contract(
    inputs={"o_a": Port("B Sq HQ DV"), "lse_a": LSE, "o_b": Port("B Sq HQ DV"), "lse_b": LSE},
    outputs={"o": Port("B Sq HQ DV"), "lse": LSE},
    flops="3 * B * Sq * HQ * DV",
)


def merged(lse_a, lse_b):
    """(share of a, share of b, lse)."""
    m = torch.maximum(lse_a, lse_b)
    m = torch.where(m == -torch.inf, 0.0, m)
    a, b = torch.exp(lse_a - m), torch.exp(lse_b - m)
    none = a + b == 0
    total = torch.where(none, 1.0, a + b)
    return a / total, b / total, torch.where(none, -torch.inf, m + torch.log(total))


def reference(o_a, lse_a, o_b, lse_b):
    """o_a, o_b [B, Sq, HQ, DV], lse_a, lse_b [B, Sq, HQ]."""
    a, b, lse = merged(lse_a, lse_b)
    return {"o": share(a, o_a) + share(b, o_b), "lse": lse}


def share(weight, o):
    """0 where the weight is, whatever o is."""
    return torch.where(weight[..., None] > 0, weight[..., None] * o, 0.0)


def vjp(d_o, d_lse, o_a, lse_a, o_b, lse_b, o, *, needs):
    """With a = exp(lse_a - lse): d_o_a = a d_o, d_lse_a = a (<d_o, o_a - o> + d_lse); b alike."""
    a, b, _ = merged(lse_a, lse_b)
    grads = {}
    for name, weight, part in (("a", a, o_a), ("b", b, o_b)):
        d = torch.zeros_like(weight) if d_lse is None else d_lse
        if d_o is not None:
            d = d + (d_o * (part - o)).sum(-1)
        grads[f"o_{name}"] = torch.zeros_like(o) if d_o is None else share(weight, d_o)
        grads[f"lse_{name}"] = torch.where(weight > 0, weight * d, 0.0)
    return {name: x for name, x in grads.items() if name in needs}


def configs(axes, device):
    BV = padded(axes["DV"])
    return [{"BR": max(1, 4096 // BV), "BV": BV, "num_warps": 4, "num_stages": 1}]


def over_rows(kernel, args, o, config):
    B, Sq, HQ, DV = o.shape
    rows = B * Sq * HQ
    return Launch(
        kernel,
        grid=(ceil_div(rows, config["BR"]),),
        args=dict(**args, rows=rows),
        constexprs=dict(DV=DV, BV=config["BV"], BR=config["BR"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


def launch(o_a, lse_a, o_b, lse_b, o, lse, *, seqs, config):
    from ..kernels.merge_states import merge_states_kernel

    args = dict(o_a=o_a, lse_a=lse_a, o_b=o_b, lse_b=lse_b, o=o, lse=lse)
    return [over_rows(merge_states_kernel, args, o_a, config)]


def vjp_launch(d_o, d_lse, o_a, lse_a, o_b, lse_b, o, d_o_a, d_lse_a, d_o_b, d_lse_b, *, seqs, config):
    from ..kernels.merge_states import merge_states_vjp_kernel

    args = dict(d_o=d_o, d_lse=d_lse, o_a=o_a, lse_a=lse_a, o_b=o_b, lse_b=lse_b, o=o)
    args |= dict(d_o_a=d_o_a, d_lse_a=d_lse_a, d_o_b=d_o_b, d_lse_b=d_lse_b)
    return [over_rows(merge_states_vjp_kernel, args, o_a, config)]


LAUNCHERS = [Launcher("triton", launch, configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, configs)]
