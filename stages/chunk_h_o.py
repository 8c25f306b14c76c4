"""Scan over chunks that emits the output: chunk_h and chunk_o in one kernel.

    o  = scale (2^g q S + (E * q k^T) v)                E[i, j] = 2^(g_i - g_j) for j <= i, else 0
    S <- 2^(g_C) S + sum over j of 2^(g_C - g_j) k_j^T v_j

The states do not go through memory. g and g_gamma as chunk_h has them: with neither nothing decays. arXiv:2312.06635.
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._decay import chunk_log_decay, pair_decay, per_value_head
from ._handover import HANDED, handed_over, over_parts
from ._scan_o import scan_o, scan_o_configs, scan_o_limits

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "g_gamma": Port("HV", F32, unit="log_decay/ln/slope", where="<= 0", optional=True),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * (2 * K * V + C * (K + V))",
)

FUSES = """
stages:
  scan: {use: chunk_h, in: {k: k, v: v, g: g, g_gamma: g_gamma, initial_state: initial_state}}
  out:  {use: chunk_o, in: {q: q, k: k, v: v, h: scan.h, g: g, g_gamma: g_gamma}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""

FASTER_ON = ("sm_90",)
SEGMENT = "chunk_h_segment"


def reference(q, k, v, g, g_gamma, initial_state, *, scale, C):
    """q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV], g_gamma [HV], initial_state [B, HV, K, V]."""
    B, T, HV, V = v.shape
    q, k = per_value_head(q, HV), per_value_head(k, HV)
    g = chunk_log_decay(g, g_gamma, v, C)
    S = v.new_zeros(B, HV, k.shape[-1], V) if initial_state is None else initial_state
    parts = [v[:, :0]]
    for start in range(0, T, C):
        rows = slice(start, start + C)
        b_q, b_k, b_v, b_g = q[:, rows], k[:, rows], v[:, rows], g[:, rows]
        scores = torch.einsum("bihk,bjhk->bhij", b_q, b_k) * pair_decay(b_g)
        read = torch.exp2(b_g)[..., None] * torch.einsum("bthk,bhkv->bthv", b_q, S)
        parts.append(scale * (read + torch.einsum("bhij,bjhv->bihv", scores, b_v)))
        last = b_g[:, -1:]
        k_end = torch.exp2(last - b_g)[..., None] * b_k
        S = torch.exp2(last[:, 0])[..., None, None] * S + torch.einsum("bthk,bthv->bhkv", k_end, b_v)
    return {"o": torch.cat(parts, dim=1), "final_state": S}


def launch(q, k, v, g, g_gamma, initial_state, o, final_state, turns, handed, *, scale, C, seqs, config):
    launches = [scan_o(q, k, v, None, None, g, g_gamma, initial_state, o, final_state, scale, C, seqs, config)]
    return over_parts(launches, turns, handed, k, seqs)


LAUNCHERS = [Launcher("triton", launch, handed_over(scan_o_configs), scan_o_limits, HANDED, always=("o",))]
