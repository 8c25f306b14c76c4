"""The cotangent of the state that enters a piece of a sequence, had none come back from later, under the delta rule.

    d_initial_state = that of chunk_delta_reverse over the piece

Of a piece that forgets, only its first chunks are scanned (_forgotten.py).
"""

from . import chunk_delta_reverse
from ._contract import F32, Contract, Launcher, Port
from ._forgotten import SCRATCH, forgotten_launch
from ._pieces import cut, in_pieces
from ._segment_pieces import (
    FORGOTTEN,
    OF_MAPS,
    of_sequences,
    segment_limits,
    segment_pieces_limits,
    through_maps,
    uncut,
)  # fmt: skip
from ._tiles import by_dtype
from .chunk_delta_states import states_launch

CONTRACT = Contract(
    inputs=chunk_delta_reverse.CONTRACT.inputs,
    outputs={"d_initial_state": Port("N HV K V", F32, unit="cotangent/state/segment_start")},
    params=chunk_delta_reverse.CONTRACT.params,
    requires=chunk_delta_reverse.CONTRACT.requires,
    flops=chunk_delta_reverse.CONTRACT.flops,
    presence=chunk_delta_reverse.CONTRACT.presence,
)


def reference(q, k, beta, Ai, g, d_o, d_final_state, *, scale, C):
    """As chunk_delta_reverse."""
    found = chunk_delta_reverse.reference(q, k, beta, Ai, g, d_o, d_final_state, scale=scale, C=C)
    return {"d_initial_state": found["d_initial_state"]}


def launch(q, k, beta, Ai, g, d_o, d_final_state, d_initial_state, d_x, forgotten, *, scale, C, seqs, config):
    """The same scan. d_x goes from one kernel to the next, where there are two."""
    # without a gate nothing is ever forgotten
    forgotten = None if g is None else forgotten
    d_x = None if by_dtype(config, "gluon", k.dtype) else d_x
    scan = chunk_delta_reverse.reverse_launches(
        q, k, beta, Ai, g, d_o, d_final_state, d_x, None, d_initial_state,
        scale=scale, C=C, seqs=seqs, config=config, forgotten=forgotten,
    )  # fmt: skip
    if forgotten is None:
        return scan
    return [forgotten_launch(g, None, None, k, beta, forgotten, K=k.shape[3], C=C, seqs=seqs, reverse=True), *scan]


ROWS = {"d_x": Port("B T HV V", doc="cotangent of x, where v_new = Ai x")}


def pieces_launch(
    q, k, beta, Ai, g, d_o, d_final_state, d_initial_state, d_x, forgotten, maps, passed, entered,
    *, scale, C, seqs, config,
):  # fmt: skip
    forgotten, count, given = of_sequences(forgotten), config["PIECES"], dict(scale=scale, C=C, config=config)
    if uncut(k, seqs):
        return launch(q, k, beta, Ai, g, d_o, d_final_state, d_initial_state, d_x, forgotten, seqs=seqs, **given)
    pieces = cut(seqs, count)
    return [
        states_launch(k, None, beta, Ai, g, None, None, None, of_sequences(maps), C=C, seqs=pieces, config=config),
        *launch(q, k, beta, Ai, g, d_o, None, of_sequences(passed), d_x, forgotten, seqs=pieces, **given),
        *through_maps(maps, passed, d_final_state, entered, d_initial_state, None, count, io=k.dtype, reverse=True),
    ]


configs = chunk_delta_reverse.configs
LAUNCHERS = [
    Launcher("triton", launch, configs, segment_limits, {**ROWS, **SCRATCH}),
    Launcher(
        "pieces", pieces_launch, in_pieces(configs), segment_pieces_limits, {**ROWS, **FORGOTTEN, **OF_MAPS}
    ),
]
