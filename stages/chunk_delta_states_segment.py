"""What a piece of a sequence does to the state under the delta rule, from the inverse: its map, and the state that it
leaves.

    map   = product over the piece's chunks, the last one leftmost, of 2^(g_C) - (2^(g_C - g) k)^T Ai (beta 2^g k)
    state = the final_state of chunk_delta_states over the piece

A state S that came in from the rank before would leave as map S + state. As chunk_delta_h_segment, without w and u.
"""

import torch

from . import chunk_delta_states
from ._contract import Contract, Launcher
from ._segment import MAP, STATE
from ._tiles import state_limits

CONTRACT = Contract(
    inputs=chunk_delta_states.CONTRACT.inputs,
    outputs={"map": MAP, "state": STATE},
    requires=chunk_delta_states.CONTRACT.requires,
    flops="B * T * HV * (4 * K + 2 * C) * (K + V)",
    presence=chunk_delta_states.CONTRACT.presence,
)


def reference(k, v, beta, Ai, g, initial_state, *, C):
    """k [B, T, H, K], v [B, T, HV, V], beta, g [B, T, HV], Ai [B, T, HV, C], initial_state [B, HV, K, V]."""
    (B, T, _, K), HV = k.shape, v.shape[2]
    scan, identity = chunk_delta_states.reference, torch.eye(K, dtype=v.dtype, device=v.device)
    passed = scan(k, v.new_zeros(B, T, HV, K), beta, Ai, g, identity.expand(B, HV, K, K), C=C)
    return {"map": passed["final_state"], "state": scan(k, v, beta, Ai, g, initial_state, C=C)["final_state"]}


def launch(k, v, beta, Ai, g, initial_state, map, state, *, C, seqs, config):
    """Two scans; what nobody asked for is left out."""
    scans = [(None, None, map), (v, initial_state, state)]
    return [
        chunk_delta_states.states_launch(
            k, values, beta, Ai, g, first, None, None, last, C=C, seqs=seqs, config=config
        )
        for values, first, last in scans
        if last is not None
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, chunk_delta_states.configs, state_limits)]
