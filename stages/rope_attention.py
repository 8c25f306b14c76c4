"""Softmax attention whose keys have two parts: one of each head, and one with the positions that all heads share.

    s_ij = scale (<q_i, k_j> + <q_rope_i, k_rope_j>)    o = softmax(s) v

over the keys first_i <= j < end_i, with lse and empty rows as in flash_fwd. The keys are split as in split_attention.
"""

import torch

from . import flash_fwd
from ._contract import INT, Contract, Launcher, Port
from ._decode import SCRATCH, decode_configs, decode_launches
from ._tiles import too_long

SPAN = {
    "first": Port("B Sq", INT, unit="index/first_key"),
    "end": Port("B Sq", INT, unit="index/end_key"),
}
CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ DN"),
        "q_rope": Port("B Sq HQ DR"),
        "k": Port("B Sk HQ DN"),
        "k_rope": Port("B Sk DR"),
        "v": Port("B Sk HQ DV"),
        **SPAN,
    },
    outputs={"o": Port("B Sq HQ DV"), "lse": flash_fwd.CONTRACT.outputs["lse"]},
    params={"scale": None},
    flops="2 * B * Sq * Sk * HQ * (DN + DR + DV)",
)


def reference(q, q_rope, k, k_rope, v, first, end, *, scale):
    """q [B, Sq, HQ, DN], q_rope [B, Sq, HQ, DR], k [B, Sk, HQ, DN], k_rope [B, Sk, DR], v [B, Sk, HQ, DV]."""
    shared = k_rope[:, :, None].expand(*k.shape[:3], -1)
    q, k = torch.cat([q, q_rope], -1), torch.cat([k, shared], -1)
    return flash_fwd.reference(q, k, v, first, end, None, None, None, scale=scale, softcap=0)


def vjp(d_o, d_lse, q, q_rope, k, k_rope, v, first, end, o, lse, *, needs, scale):
    """flash_fwd's, in two parts; what all heads share takes from all."""
    wide, DN = k_rope[:, :, None].expand(*k.shape[:3], -1), q.shape[-1]
    both = torch.cat([q, q_rope], -1), torch.cat([k, wide], -1)
    grads = flash_fwd.vjp(
        d_o, d_lse, *both, v, first, end, None, None, None, o=o, lse=lse, needs={"q", "k", "v"}, scale=scale, softcap=0
    )
    q, k = grads["q"], grads["k"]
    found = {"q": q[..., :DN], "q_rope": q[..., DN:], "k": k[..., :DN], "k_rope": k[..., DN:].sum(2), "v": grads["v"]}
    return {name: x for name, x in found.items() if name in needs}


def limits(axes, device):
    return too_long(axes, "DN", "DR", "DV")


def configs(axes, device):
    return decode_configs(axes["Sk"], axes | {"H": axes["HQ"]}, (axes["DN"], axes["DR"], axes["DV"]), device)


def launch(
    q, q_rope, k, k_rope, v, first, end, o, lse, o_parts, lse_parts, *, scale, seqs, config
):  # fmt: skip
    return decode_launches(
        q, k, v, None, first, end, None, None, None, o, lse, o_parts, lse_parts, k.shape[1], 1, scale, 0, config,
        ropes=(q_rope, k_rope),
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, limits, SCRATCH)]
