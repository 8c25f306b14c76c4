"""Kimi Delta Attention token by token in one kernel: the delta rule with a decay per channel of the keys.

    S <- diag(exp(g)) S        S <- S + k^T beta (v - k S)        o = scale q S

arXiv:2510.26692.
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
        "beta": Port("B T HV"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="7 * B * T * HV * K * V",
)

REPLACES = """
stages:
  cumsum: {use: chunk_local_cumsum_k, in: {x: g}}
  intra: {use: kda_intra, in: {q: q, k: k, beta: beta, b: cumsum.y}, with: {scale: scale}}
  solve: {use: solve_tril, in: {A: intra.A_kk}}
  wy: {use: recompute_w_u_k, in: {kb: intra.kb, v: v, beta: beta, Ai: solve.Ai}}
  scan: {use: chunk_delta_h_k, in: {kg: intra.kg, w: wy.w, u: wy.u, b_end: intra.b_end, initial_state: initial_state}}
  out: {use: chunk_o_k, in: {qg: intra.qg, A: intra.A_qk, v: scan.v_new, h: scan.h}}
outputs: {o: out.o, final_state: scan.final_state}
"""


def reference(q, k, v, g, beta, initial_state, *, scale):
    """q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K], beta [B, T, HV], initial_state [B, HV, K, V]."""
    return recurrence(q, k, v, torch.exp(g), beta, initial_state, scale)


def launch(q, k, v, g, beta, initial_state, o, final_state, *, scale, seqs, config):
    return linear_launch(
        q, k, v, g, None, beta, initial_state, None, o, final_state, scale=scale, seqs=seqs, config=config,
        per_channel=True,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, recurrent_configs, recurrent_limits)]
