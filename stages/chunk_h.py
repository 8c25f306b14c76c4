"""Scan over chunk states: each chunk decays the state and writes its keys and values.

    h[n] = S                                          the state that enters chunk n
    S   <- 2^(g_C) S + sum over j of 2^(g_C - g_j) k_j^T v_j

g is the chunk sum of a gate; g_gamma a fixed natural log decay per token and head, which makes the exponent of
the row with number r in its chunk g_gamma (r + 1) log2 e. Both given, they add; with neither nothing decays.
g_C belongs to the chunk's last valid row. S starts from initial_state, zeros when absent, and ends as final_state.
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._decay import chunk_log_decay, per_value_head
from ._scan import scan_configs, state_scan
from ._scan_vjp import SCRATCH, scan_vjp, scan_vjp_configs, scan_vjp_launches
from ._tiles import state_limits

CONTRACT = Contract(
    inputs={
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "g_gamma": Port("HV", F32, unit="log_decay/ln/slope", where="<= 0", optional=True),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "final_state": Port("N HV K V", F32, unit="state/sequence_end"),
    },
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * K * V",
)

SEGMENT = "chunk_h_segment"


def reference(k, v, g, g_gamma, initial_state, *, C):
    """k [B, T, H, K], v [B, T, HV, V], g [B, T, HV], g_gamma [HV], initial_state [B, HV, K, V]."""
    B, T, HV, V = v.shape
    k = per_value_head(k, HV)
    g = chunk_log_decay(g, g_gamma, v, C)
    S = v.new_zeros(B, HV, k.shape[-1], V) if initial_state is None else initial_state
    states = [v.new_zeros(B, 0, *S.shape[1:])]
    for start in range(0, T, C):
        rows = slice(start, start + C)
        last = g[:, rows][:, -1:]
        k_end = torch.exp2(last - g[:, rows])[..., None] * k[:, rows]
        states.append(S[:, None])
        S = torch.exp2(last[:, 0])[..., None, None] * S + torch.einsum("bthk,bthv->bhkv", k_end, v[:, rows])
    return {"h": torch.cat(states, dim=1), "final_state": S}


def vjp(d_h, d_final_state, k, v, g, g_gamma, h, *, needs, C):
    """The reverse scan of _scan_vjp. Slopes are constants: no gradient by g_gamma."""
    grads = scan_vjp(d_h, None, d_final_state, k, None, chunk_log_decay(g, g_gamma, v, C), h, v, C=C)
    return {name: x for name, x in grads.items() if name in needs}


def launch(k, v, g, g_gamma, initial_state, h, final_state, *, C, seqs, config):
    return [state_scan(k, None, v, g, g_gamma, initial_state, h, None, final_state, C=C, seqs=seqs, config=config)]


def vjp_launch(
    d_h, d_final_state, k, v, g, g_gamma, h, d_k, d_v, d_g, d_initial_state, d_s, dg_parts, *, C, seqs, config
):  # fmt: skip
    return scan_vjp_launches(
        d_h, None, d_final_state, k, None, g, g_gamma, h, v, d_k, None, d_v, d_g, d_initial_state, d_s, dg_parts,
        C=C, seqs=seqs, config=config,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, scan_configs, state_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, scan_vjp_configs, state_limits, SCRATCH)]
