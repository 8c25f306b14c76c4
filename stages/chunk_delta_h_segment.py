"""What a piece of a sequence does to the state under the delta rule: its map, and the state that it leaves.

    map   = product over the piece's chunks, the last one leftmost, of 2^(g_C) - (2^(g_C - g) k)^T w
    state = the final_state of chunk_delta_h over the piece

A state S that came in from the rank before would leave as map S + state. The map is made as the scan makes its state:
it is what the scan leaves of the identity when nothing is written.
"""

from . import chunk_delta_h
from ._contract import Contract, Launcher
from ._pieces import cut, in_pieces
from ._segment import MAP, STATE, identity, segment_configs, segment_launches
from ._segment_pieces import OF_MAPS, of_sequences, segment_limits, segment_pieces_limits, through_maps, uncut

CONTRACT = Contract(
    inputs=chunk_delta_h.CONTRACT.inputs,
    outputs={"map": MAP, "state": STATE},
    requires=chunk_delta_h.CONTRACT.requires,
    flops="4 * B * T * HV * K * (K + V)",
)


def reference(k, w, u, g, initial_state, *, C):
    """k [B, T, H, K], w [B, T, HV, K], u [B, T, HV, V], g [B, T, HV], initial_state [B, HV, K, V]."""
    scan = chunk_delta_h.reference
    passed = scan(k, w, w.new_zeros(w.shape), g, identity(w), C=C)
    return {"map": passed["final_state"], "state": scan(k, w, u, g, initial_state, C=C)["final_state"]}


def launch(k, w, u, g, initial_state, map, state, *, C, seqs, config):
    return segment_launches(k, w, u, g, None, initial_state, map, None, state, C=C, seqs=seqs, config=config)


def pieces_launch(k, w, u, g, initial_state, map, state, maps, passed, entered, *, C, seqs, config):
    count = config["PIECES"]
    if uncut(k, seqs):
        return launch(k, w, u, g, initial_state, map, state, C=C, seqs=seqs, config=config)
    each = launch(k, w, u, g, None, of_sequences(maps), of_sequences(passed), C=C, seqs=cut(seqs, count), config=config)
    return each + through_maps(maps, passed, initial_state, entered, state, map, count, io=k.dtype)


LAUNCHERS = [
    Launcher("triton", launch, segment_configs, segment_limits),
    Launcher("pieces", pieces_launch, in_pieces(segment_configs), segment_pieces_limits, OF_MAPS),
]
