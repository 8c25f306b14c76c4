"""What a piece of a sequence does to the state under a decay per head: its whole decay, and the state that it leaves.

    decay = 2^(sum over the piece's chunks of g_C)
    state = the final_state of chunk_h over the piece

A state S that came in from the rank before would leave as decay S + state. Every channel has its head's decay.
Of a piece that forgets, only what it remembers at its end is scanned (_forgotten.py).
"""

import torch

from . import chunk_h
from ._channel_decay import last_rows
from ._contract import Contract, Launcher
from ._decay import chunk_log_decay
from ._forgotten import SCRATCH
from ._pieces import cut, in_pieces, whole
from ._segment import DECAY, STATE, segment_configs, segment_launches
from ._segment_pieces import (
    FORGOTTEN,
    OF_DECAYS,
    of_sequences,
    segment_limits,
    segment_pieces_limits,
    through_decays,
)

CONTRACT = Contract(
    inputs=chunk_h.CONTRACT.inputs,
    outputs={"decay": DECAY, "state": STATE},
    requires=chunk_h.CONTRACT.requires,
    flops="2 * B * T * HV * K * V",
)


def reference(k, v, g, g_gamma, initial_state, *, C):
    """k [B, T, H, K], v [B, T, HV, V], g [B, T, HV], g_gamma [HV], initial_state [B, HV, K, V]."""
    ends = chunk_log_decay(g, g_gamma, v, C).index_select(1, last_rows(v.shape[1], C, v.device))
    decay = torch.exp2(ends.sum(1)).unsqueeze(-1).expand(-1, -1, k.shape[-1])
    return {"decay": decay, "state": chunk_h.reference(k, v, g, g_gamma, initial_state, C=C)["final_state"]}


def launch(k, v, g, g_gamma, initial_state, decay, state, forgotten, *, C, seqs, config):
    return segment_launches(
        k, None, v, g, g_gamma, initial_state, None, decay, state, forgotten=forgotten, C=C, seqs=seqs, config=config
    )


def pieces_launch(k, v, g, g_gamma, initial_state, decay, state, forgotten, decays, passed, *, C, seqs, config):
    forgotten, count = of_sequences(forgotten), config["PIECES"]
    if state is None or whole(k, seqs):
        return launch(k, v, g, g_gamma, initial_state, decay, state, forgotten, C=C, seqs=seqs, config=config)
    each = launch(
        k, v, g, g_gamma, None, of_sequences(decays), of_sequences(passed), forgotten,
        C=C, seqs=cut(seqs, count), config=config,
    )  # fmt: skip
    each.append(through_decays(decays, passed, initial_state, state, count))
    return each + launch(k, v, g, g_gamma, None, decay, None, None, C=C, seqs=seqs, config=config)


LAUNCHERS = [
    Launcher("triton", launch, segment_configs, segment_limits, SCRATCH),
    Launcher(
        "pieces", pieces_launch, in_pieces(segment_configs), segment_pieces_limits, {**FORGOTTEN, **OF_DECAYS}
    ),
]
