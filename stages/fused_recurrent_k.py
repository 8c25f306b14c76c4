"""Gated linear attention token by token in one kernel: a decay per channel of the keys.

    S <- diag(exp(g)) S + k^T v        o = scale q S

arXiv:2312.06635.
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._fused_recurrent import linear_launch, recurrence, recurrent_configs, recurrent_limits

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV K", F32, unit="log_decay/ln/token", where="<= 0"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="5 * B * T * HV * K * V",
)

REPLACES = """
stages:
  cumsum: {use: chunk_local_cumsum_k, in: {x: g}}
  intra:  {use: gla_intra, in: {q: q, k: k, b: cumsum.y}, with: {scale: scale}}
  scan:   {use: chunk_h_k, in: {kg: intra.kg, v: v, b_end: intra.b_end, initial_state: initial_state}}
  out:    {use: chunk_o_k, in: {qg: intra.qg, A: intra.A, v: v, h: scan.h}}
outputs: {o: out.o, final_state: scan.final_state}
"""


def reference(q, k, v, g, initial_state, *, scale):
    """q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K], initial_state [B, HV, K, V]."""
    return recurrence(q, k, v, torch.exp(g), None, initial_state, scale)


def launch(q, k, v, g, initial_state, o, final_state, *, scale, seqs, config):
    return linear_launch(
        q, k, v, g, None, None, initial_state, None, o, final_state, scale=scale, seqs=seqs, config=config,
        per_channel=True,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, recurrent_configs, recurrent_limits)]
