"""How much each query wants each key, by heads that share one key: what top_k chooses by.

    y_ij = sum over h of w_ih relu(<q_ih, k_j>)

over the keys first_i <= j < end_i (first_i is 0 unless given), and -inf elsewhere, whatever a key holds that is not
seen. arXiv:2512.02556.
"""

from dataclasses import replace

import torch

from ._attention import seen, sum_over_keys
from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._tiles import by_dtype, padded, precision, too_long, whole
from .rope_attention import SPAN

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HI KI", unit="indexer/query"),
        "k": Port("B Sk KI", unit="indexer/key"),
        "w": Port("B Sq HI", F32, unit="indexer/weight"),
        "first": replace(SPAN["first"], optional=True),
        "end": SPAN["end"],
    },
    outputs={"y": Port("B Sq Sk", F32, unit="score/index")},
    flops="2 * B * Sq * Sk * HI * (KI + 1)",
)


def reference(q, k, w, first, end):
    """q [B, Sq, HI, KI], k [B, Sk, KI], w [B, Sq, HI], first, end [B, Sq]."""
    first = end * 0 if first is None else first
    s = torch.einsum("bihd,bjd->bihj", q, k)
    y = (w[..., None] * torch.relu(s)).sum(2)
    return {"y": torch.where(seen(first, end, k.shape[1])[:, 0, 0], y, -torch.inf)}


def vjp(d_y, q, k, w, first, end, *, needs):
    """With ds = w dy where s > 0: dq = ds k, dk = ds^T q, dw = sum over the keys of relu(s) dy."""
    keep = seen(end * 0 if first is None else first, end, k.shape[1])
    s = torch.einsum("bihd,bjd->bihj", q, k)
    d_y = torch.where(keep[:, 0, 0], d_y, 0.0)[:, :, None]
    ds = torch.where((s > 0) & keep[:, 0, 0][:, :, None], w[..., None] * d_y, 0.0)
    by_key = ds.permute(0, 2, 1, 3)[:, None]  # [B, 1, HI, Sq, Sk]: one key for all heads
    grads = {
        "q": sum_over_keys(by_key, keep, k[:, :, None]).flatten(2, 3),
        "k": torch.einsum("bihj,bihd->bjd", ds, q),
        "w": torch.where(d_y != 0, torch.relu(s) * d_y, 0.0).sum(-1),
    }
    return {name: x for name, x in grads.items() if name in needs}


def limits(axes, device):
    return too_long(axes, "KI")


def configs(axes, device):
    """BM queries by BN keys, BH heads at a time. The fewer queries there are, the more programs wait for keys."""
    shared = {"BM": 16, "BH": 64, "BH_F32": 16, "BN_F32": 32, "num_warps": 4, "num_stages_F32": 1}
    return [{"BN": BN, "num_stages": stages, **shared} for BN, stages in ((128, 2), (64, 2))]


def launch(q, k, w, first, end, y, *, seqs, config):
    from ..kernels.lightning_indexer import lightning_indexer_kernel

    (B, Sq, HI, KI), Sk = q.shape, k.shape[1]
    BM, BN = config["BM"], by_dtype(config, "BN", q.dtype)
    return [
        Launch(
            lightning_indexer_kernel,
            grid=(B * ceil_div(Sq, BM) * ceil_div(Sk, BN),),
            args=dict(q=q, k=k, w=w, first=first, end=end, y=y, Sq=Sq, Sk=Sk, HI=HI),
            constexprs=dict(
                KI=KI, BK=whole(KI, q.dtype), BH=min(by_dtype(config, "BH", q.dtype), padded(HI)), BM=BM, BN=BN,
                PRECISION=precision(q.dtype),
            ),
            num_warps=config["num_warps"],
            num_stages=by_dtype(config, "num_stages", q.dtype),
        )
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, limits)]
