"""What a piece does to the state under the delta rule, from the inverse: its map, and the state that it leaves.

    map   = product over the piece's chunks, the last one leftmost, of 2^(g_C) - (2^(g_C - g) k)^T Ai (beta 2^g k)
    state = the final_state of chunk_delta_states over the piece

A state S that came in from the rank before would leave as map S + state. As chunk_delta_h_segment, without w and u.
Of a piece that forgets, only what it remembers at its end is scanned (_forgotten.py).
"""

import torch

from . import chunk_delta_states
from ._contract import Contract, Launcher
from ._forgotten import SCRATCH, forgotten_launch
from ._pieces import cut, in_pieces
from ._segment import MAP, STATE
from ._segment_pieces import (
    FORGOTTEN,
    OF_MAPS,
    of_sequences,
    segment_limits,
    segment_pieces_limits,
    through_maps,
    uncut,
)  # fmt: skip

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


def launch(k, v, beta, Ai, g, initial_state, map, state, forgotten, *, C, seqs, config):
    """Two scans; what nobody asked for is left out."""
    given = dict(C=C, seqs=seqs)
    # without a gate nothing is ever forgotten
    launches = [] if g is None else [forgotten_launch(g, None, None, k, beta, forgotten, K=k.shape[3], **given)]
    given |= dict(config=config, forgotten=None if g is None else forgotten)
    for values, first, last in ((None, None, map), (v, initial_state, state)):
        if last is not None:
            launches.append(
                chunk_delta_states.states_launch(k, values, beta, Ai, g, first, None, None, last, **given)
            )
    return launches


def pieces_launch(k, v, beta, Ai, g, initial_state, map, state, forgotten, maps, passed, entered, *, C, seqs, config):
    forgotten, count = of_sequences(forgotten), config["PIECES"]
    if uncut(k, seqs):
        return launch(k, v, beta, Ai, g, initial_state, map, state, forgotten, C=C, seqs=seqs, config=config)
    each = launch(
        k, v, beta, Ai, g, None, of_sequences(maps), of_sequences(passed), forgotten,
        C=C, seqs=cut(seqs, count), config=config,
    )  # fmt: skip
    return each + through_maps(maps, passed, initial_state, entered, state, map, count, io=k.dtype)


configs = chunk_delta_states.configs
LAUNCHERS = [
    Launcher("triton", launch, configs, segment_limits, SCRATCH),
    Launcher("pieces", pieces_launch, in_pieces(configs), segment_pieces_limits, {**FORGOTTEN, **OF_MAPS}),
]
