"""What a piece of a sequence does to the state under a decay per channel: its whole decay, and the state it leaves.

    decay = 2^(sum over the piece's chunks of b_end)
    state = the final_state of chunk_h_k over the piece

A state S that came in from the rank before would leave as diag(decay) S + state. Of a piece
that forgets, only what it remembers at its end is scanned (_forgotten.py).
"""

import torch

from . import chunk_h_k
from ._contract import Contract, Launcher
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
    inputs=chunk_h_k.CONTRACT.inputs,
    outputs={"decay": DECAY, "state": STATE},
    flops="2 * B * T * HV * K * V",
)


def reference(kg, v, b_end, initial_state, *, C):
    """kg [B, T, HV, K], v [B, T, HV, V], b_end [B, NT, HV, K], initial_state [B, HV, K, V]."""
    found = chunk_h_k.reference(kg, v, b_end, initial_state, C=C)
    return {"decay": torch.exp2(b_end.sum(1)), "state": found["final_state"]}


def launch(kg, v, b_end, initial_state, decay, state, forgotten, *, C, seqs, config):
    return segment_launches(
        kg, None, v, None, None, initial_state, None, decay, state, b_end=b_end, forgotten=forgotten, C=C, seqs=seqs,
        config=config,
    )  # fmt: skip


def pieces_launch(kg, v, b_end, initial_state, decay, state, forgotten, decays, passed, *, C, seqs, config):
    forgotten, count = of_sequences(forgotten), config["PIECES"]
    if state is None or whole(kg, seqs):
        return launch(kg, v, b_end, initial_state, decay, state, forgotten, C=C, seqs=seqs, config=config)
    each = launch(
        kg, v, b_end, None, of_sequences(decays), of_sequences(passed), forgotten,
        C=C, seqs=cut(seqs, count), config=config,
    )  # fmt: skip
    each.append(through_decays(decays, passed, initial_state, state, count))
    return each + launch(kg, v, b_end, None, decay, None, None, C=C, seqs=seqs, config=config)


LAUNCHERS = [
    Launcher("triton", launch, segment_configs, segment_limits, SCRATCH),
    Launcher(
        "pieces", pieces_launch, in_pieces(segment_configs), segment_pieces_limits, {**FORGOTTEN, **OF_DECAYS}
    ),
]
