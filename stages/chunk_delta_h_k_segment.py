"""What a piece of a sequence does to the state under the delta rule and a decay per channel: its map, and its state.

    map   = product over the piece's chunks, the last one leftmost, of diag(2^b_end) - kg^T w
    state = the final_state of chunk_delta_h_k over the piece

A state S that came in from the rank before would leave as map S + state.
"""

from . import chunk_delta_h_k
from ._channel_scan import channel_scan
from ._contract import Contract, Launcher
from ._pieces import cut, in_pieces
from ._segment import MAP, STATE, identity, segment_configs, segment_launches
from ._segment_pieces import OF_MAPS, of_sequences, segment_limits, segment_pieces_limits, through_maps, uncut

CONTRACT = Contract(
    inputs=chunk_delta_h_k.CONTRACT.inputs,
    outputs={"map": MAP, "state": STATE},
    flops="4 * B * T * HV * K * (K + V)",
)


def reference(kg, w, u, b_end, initial_state, *, C):
    """kg, w [B, T, HV, K], u [B, T, HV, V], b_end [B, NT, HV, K], initial_state [B, HV, K, V]."""
    passed = channel_scan(kg, w, w.new_zeros(w.shape), b_end, identity(w), C=C)
    found = channel_scan(kg, w, u, b_end, initial_state, C=C)
    return {"map": passed["final_state"], "state": found["final_state"]}


def launch(kg, w, u, b_end, initial_state, map, state, *, C, seqs, config):
    return segment_launches(
        kg, w, u, None, None, initial_state, map, None, state, b_end=b_end, C=C, seqs=seqs, config=config
    )


def pieces_launch(kg, w, u, b_end, initial_state, map, state, maps, passed, entered, *, C, seqs, config):
    count = config["PIECES"]
    if uncut(kg, seqs):
        return launch(kg, w, u, b_end, initial_state, map, state, C=C, seqs=seqs, config=config)
    each = launch(
        kg, w, u, b_end, None, of_sequences(maps), of_sequences(passed), C=C, seqs=cut(seqs, count), config=config
    )
    return each + through_maps(maps, passed, initial_state, entered, state, map, count, io=kg.dtype)


LAUNCHERS = [
    Launcher("triton", launch, segment_configs, segment_limits),
    Launcher("pieces", pieces_launch, in_pieces(segment_configs), segment_pieces_limits, OF_MAPS),
]
