"""The latents that each query has chosen, one after another; 0 past the last one."""

import torch

from ._contract import Contract, Launch, Launcher, Port, ceil_div
from ._tiles import padded
from .top_k import CHOSEN

CONTRACT = Contract(
    inputs={"c": Port("B Sk DC"), "k_rope": Port("B Sk DR"), **CHOSEN},
    outputs={"c_rows": Port("B Sq TOP DC"), "rope_rows": Port("B Sq TOP DR")},
    flops="B * Sq * TOP * (DC + DR)",
)


def reference(c, k_rope, places, count):
    """c [B, Sk, DC], k_rope [B, Sk, DR], places [B, Sq, TOP], count [B, Sq]."""
    return {"c_rows": rows(c, places, count), "rope_rows": rows(k_rope, places, count)}


def chosen(places, count):
    """Which of the places [B, Sq, TOP] there are."""
    return torch.arange(places.shape[-1], device=places.device) < count[..., None]


def rows(x, places, count):
    """[B, Sq, TOP, *] of x [B, Sk, *]."""
    there = chosen(places, count)
    if not x.shape[1]:
        return x.new_zeros(*there.shape, x.shape[-1])
    batch = torch.arange(len(x), device=x.device)[:, None, None]
    return torch.where(there[..., None], x[batch, torch.where(there, places.long(), 0)], 0.0)


def vjp(d_c_rows, d_rope_rows, c, k_rope, places, count, *, needs):
    """A row takes from every query that has chosen it."""
    pairs = {"c": (c, d_c_rows), "k_rope": (k_rope, d_rope_rows)}
    return {name: scattered(x, d, places, count) for name, (x, d) in pairs.items() if name in needs}


def scattered(x, d, places, count):
    """The sums [B, Sk, *] of what the chosen rows give; d [B, Sq, TOP, *] or None."""
    total = torch.zeros_like(x)
    if d is None or not x.shape[1]:
        return total
    there = chosen(places, count)
    row = torch.arange(len(x), device=x.device)[:, None, None] * x.shape[1] + torch.where(there, places.long(), 0)
    parts = torch.where(there[..., None], d, 0.0)
    return total.flatten(0, 1).index_add(0, row.flatten(), parts.flatten(0, 2)).view_as(x)


def configs(axes, device):
    return [{"BN": 16, "num_warps": 4, "num_stages": 1}]


def launch(c, k_rope, places, count, c_rows, rope_rows, *, seqs, config):
    return [gather_launch(c, k_rope, places, count, c_rows, rope_rows, config)]


def gather_launch(c, k_rope, places, count, c_rows, rope_rows, config):
    """k_rope and rope_rows None: there is c alone."""
    from ..kernels.gather_latent import gather_latent_kernel

    (B, Sq, TOP), (Sk, DC), BN = places.shape, c.shape[1:], config["BN"]
    DR = 1 if k_rope is None else k_rope.shape[-1]
    return Launch(
        gather_latent_kernel,
        grid=(B * Sq * ceil_div(TOP, BN),),
        args=dict(
            c=c, k_rope=k_rope, places=places, count=count, c_rows=c_rows, rope_rows=rope_rows, Sq=Sq, Sk=Sk, TOP=TOP
        ),
        constexprs=dict(DC=DC, DR=DR, BC=padded(DC), BR=padded(DR), BN=BN),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


LAUNCHERS = [Launcher("triton", launch, configs)]
