"""Softmax attention of all heads over one latent, which is key and value at once, beside a part with the positions.

    s_ij = scale (<q_i, c_j> + <q_rope_i, k_rope_j>)    o = softmax(s) c

over the keys first_i <= j < end_i, with lse and empty rows as in flash_fwd. The keys are split as in split_attention,
and each tile of the latent is read once.
"""

import torch

from . import flash_fwd
from ._contract import F32, Contract, Launcher, Port, ceil_div
from ._decode import float32_tiles, latent_launches, splits
from .rope_attention import SPAN

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ DC"),
        "q_rope": Port("B Sq HQ DR"),
        "c": Port("B Sk DC"),
        "k_rope": Port("B Sk DR"),
        **SPAN,
    },
    outputs={"o": Port("B Sq HQ DC"), "lse": flash_fwd.CONTRACT.outputs["lse"]},
    params={"scale": None},
    flops="2 * B * Sq * Sk * HQ * (2 * DC + DR)",
)
SCRATCH = {
    "o_parts": Port("SPLITS B Sq HQ DC", doc="the output over each split of the keys"),
    "lse_parts": Port("SPLITS B Sq HQ", F32, doc="its log-sum-exp"),
}
KEYS = 1024
"""The fewest keys of a split: each leaves a result as wide as the latent for every head."""


def reference(q, q_rope, c, k_rope, first, end, *, scale):
    """q [B, Sq, HQ, DC], q_rope [B, Sq, HQ, DR], c [B, Sk, DC], k_rope [B, Sk, DR]."""
    q, k, c = torch.cat([q, q_rope], -1), torch.cat([c, k_rope], -1)[:, :, None], c[:, :, None]
    return flash_fwd.reference(q, k, c, first, end, None, None, None, scale=scale, softcap=0)


def vjp(d_o, d_lse, q, q_rope, c, k_rope, first, end, o, lse, *, needs, scale):
    """flash_fwd's, in two parts; the latent takes as key and as value."""
    both, DC = (torch.cat([q, q_rope], -1), torch.cat([c, k_rope], -1)[:, :, None]), c.shape[-1]
    grads = flash_fwd.vjp(
        d_o, d_lse, *both, c[:, :, None], first, end, None, None, None, o=o, lse=lse, needs={"q", "k", "v"},
        scale=scale, softcap=0,
    )  # fmt: skip
    q, k, v = grads["q"], grads["k"][:, :, 0], grads["v"][:, :, 0]
    found = {"q": q[..., :DC], "q_rope": q[..., DC:], "c": k[..., :DC] + v, "k_rope": k[..., DC:]}
    return {name: x for name, x in found.items() if name in needs}


def limits(axes, device):
    return f"DC = {axes['DC']}: at most 512" if axes["DC"] > 512 else None


def configs(axes, device):
    """gluon: the kernel for Hopper, for 16 bits and the widths that fill what is on chip. Its tiles are of one query's
    heads: of several queries with few heads, others have more rows to multiply."""
    rows = ceil_div(axes["Sq"] * axes["HQ"], 64)
    shared = {"gluon": 0, "gluon_F32": 0, **float32_tiles((axes["DC"], axes["DR"]))}
    shared["SPLITS"] = splits(axes["Sk"], rows, KEYS)
    if device != "sm_90":
        return [{"BM": 64, "BN": 32, "num_warps": 8, "num_stages": stages, **shared} for stages in (1, 2)]
    tiles = [{"BM": 64, "BN": 64, "num_warps": 8, "num_stages": stages, **shared} for stages in (2, 1)]
    if axes["DC"] != 512 or axes["DR"] != 64 or axes["HQ"] <= 32 and axes["Sq"] > 1:
        return tiles
    return [{**tiles[1], "gluon": 1, "SPLITS": splits(axes["Sk"], rows)}, *tiles]


def launch(q, q_rope, c, k_rope, first, end, o, lse, o_parts, lse_parts, *, scale, seqs, config):
    return latent_launches(
        q, q_rope, c, k_rope, None, first, end, o, lse, o_parts, lse_parts, c.shape[1], 1, scale, config
    )


LAUNCHERS = [Launcher("triton", launch, configs, limits, SCRATCH)]
