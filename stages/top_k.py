"""The keys that each query wants most, in rising order: the lower key first where two are wanted alike.

A score of -inf is no candidate. Where candidates are fewer than TOP, all are chosen, and -1 fills the rest.
"""

import torch

from ._contract import F32, INT, Contract, Launch, Launcher, Port

CHOSEN = {
    "places": Port("B Sq TOP", INT, unit="index/chosen_key"),
    "count": Port("B Sq", INT, unit="count/chosen"),
}
CONTRACT = Contract(
    inputs={"x": Port("B Sq Sk", F32, unit="score/index")},
    outputs=CHOSEN,
    flops="4 * B * Sq * Sk",
)


def reference(x, *, TOP):
    """x [B, Sq, Sk], places [B, Sq, TOP], count [B, Sq]."""
    Sk = x.shape[-1]
    order = x.sort(stable=True, dim=-1, descending=True).indices[..., :TOP]
    order = torch.where(x.gather(-1, order) == -torch.inf, Sk, order)
    order = torch.nn.functional.pad(order, (0, TOP - order.shape[-1]), value=Sk).sort(-1).values
    there = order < Sk
    return {"places": torch.where(there, order, -1).int(), "count": there.sum(-1).int()}


def configs(axes, device):
    return [{"BS": BS, "num_warps": warps, "num_stages": 1} for BS, warps in ((2048, 8), (1024, 4))]


def launch(x, places, count, *, TOP, seqs, config):
    from ..kernels.top_k import top_k_kernel

    B, Sq, Sk = x.shape
    return [
        Launch(
            top_k_kernel,
            grid=(B * Sq,),
            args=dict(x=x, places=places, count=count, S=Sk, TOP=TOP),
            constexprs=dict(BS=config["BS"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


LAUNCHERS = [Launcher("triton", launch, configs)]
