"""The cotangent of the state that enters a piece of a sequence, had none come back from later, under a decay per head.

    dS <- 2^(g_C) dS + scale (2^g q)^T d_o            from the last chunk to the first

dS starts as d_final_state, zeros when absent, and ends as d_initial_state: what chunk_h_o_grads makes, by itself. Of a
piece that forgets, only its first chunks are scanned (_forgotten.py).
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._decay import chunk_log_decay, per_value_head
from ._forgotten import SCRATCH, forgotten_launch
from ._pieces import cut, in_pieces, whole
from ._scan_grads import one_scan
from ._segment import decay_launch
from ._segment_pieces import (
    FORGOTTEN,
    OF_DECAYS,
    of_sequences,
    segment_limits,
    segment_pieces_limits,
    through_decays,
)

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "g_gamma": Port("HV", F32, unit="log_decay/ln/slope", where="<= 0", optional=True),
        "d_o": Port("B T HV V"),
        "d_final_state": Port("N HV K V", F32, unit="cotangent/state/sequence_end", optional=True),
    },
    outputs={"d_initial_state": Port("N HV K V", F32, unit="cotangent/state/segment_start")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * K * V",
)


def reference(q, g, g_gamma, d_o, d_final_state, *, scale, C):
    """q [B, T, H, K], d_o [B, T, HV, V], g [B, T, HV], g_gamma [HV], d_final_state [B, HV, K, V]."""
    B, T, HV, V = d_o.shape
    q, b = per_value_head(q, HV), chunk_log_decay(g, g_gamma, d_o, C)
    dS = d_o.new_zeros(B, HV, q.shape[-1], V) if d_final_state is None else d_final_state
    for start in reversed(range(0, T, C)):
        rows = slice(start, start + C)
        read = scale * torch.exp2(b[:, rows])[..., None] * q[:, rows]
        dS = torch.exp2(b[:, rows][:, -1])[..., None, None] * dS
        dS = dS + torch.einsum("bthk,bthv->bhkv", read, d_o[:, rows])
    return {"d_initial_state": dS}


def configs(axes, device):
    """BV rows of the state, all its columns; BN chunk ends and BD channels for the sum of decays."""
    wide = axes["K"] > 128 or axes["V"] > 128 or axes["C"] == 128
    tile = {"BV": 32, "num_warps": 8, "num_stages": 1} if wide else {"BV": 64, "num_warps": 4, "num_stages": 2}
    float32 = {"BK_F32": 32, "BV_F32": 16, "num_stages_F32": 1, "num_warps_F32": 8 if axes["C"] == 128 else 4}
    return [{"BK": 64, "BN": 64, "BD": 64, **float32, **tile}]


def launch(q, g, g_gamma, d_o, d_final_state, d_initial_state, forgotten, *, scale, C, seqs, config):
    """The reverse scan of chunk_h_o_grads, without its output."""
    decays, HV, V = g is not None or g_gamma is not None, *d_o.shape[2:]
    scan = one_scan(
        d_o, d_o, q, g, g_gamma, d_final_state, None, None, d_initial_state, scale, HV, C, seqs, config,
        forgotten=forgotten if decays else None, BACKWARD=True, TURNED=True,
    )  # fmt: skip
    if not decays:
        return [scan]
    return [forgotten_launch(g, g_gamma, None, None, None, forgotten, K=V, C=C, seqs=seqs, reverse=True), scan]


def pieces_launch(
    q, g, g_gamma, d_o, d_final_state, d_initial_state, forgotten, decays, passed, *, scale, C, seqs, config
):  # fmt: skip
    forgotten, count, given = of_sequences(forgotten), config["PIECES"], dict(scale=scale, C=C, config=config)
    if whole(q, seqs):
        return launch(q, g, g_gamma, d_o, d_final_state, d_initial_state, forgotten, seqs=seqs, **given)
    pieces = cut(seqs, count)
    return [
        *launch(q, g, g_gamma, d_o, None, of_sequences(passed), forgotten, seqs=pieces, **given),
        decay_launch(g, g_gamma, None, of_sequences(decays), C=C, seqs=pieces, config=config),
        through_decays(decays, passed, d_final_state, d_initial_state, count, reverse=True),
    ]


LAUNCHERS = [
    Launcher("triton", launch, configs, segment_limits, SCRATCH),
    Launcher("pieces", pieces_launch, in_pieces(configs), segment_pieces_limits, {**FORGOTTEN, **OF_DECAYS}),
]
