"""Scan over chunk states under the delta rule: each chunk corrects its values by what the entering state holds.

    h[n]  = S                                         the state that enters chunk n
    v_new = u - w S                                   the chunk's values, corrected
    S    <- 2^(g_C) S + sum over j of 2^(g_C - g_j) k_j^T v_new_j

g_C is the sum at the chunk's last valid row; without g nothing decays. S starts from initial_state, zeros when
absent, and ends as final_state: an empty sequence returns the state that it was given. arXiv:2412.06464.
Long sequences of few heads are scanned in pieces (_pieces.py).
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._decay import chunk_log_decay, per_value_head
from ._pieces import SCRATCH as PIECES
from ._pieces import chain, cut, in_pieces, one_piece_limits, piece_limits, whole
from ._scan import scan_configs, state_scan
from ._scan_vjp import SCRATCH, reverse_scan, scan_vjp, scan_vjp_configs, scan_vjp_launches
from ._segment import map_launch

CONTRACT = Contract(
    inputs={
        "k": Port("B T H K"),
        "w": Port("B T HV K", unit="wy/decayed_key"),
        "u": Port("B T HV V", unit="wy/value"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "v_new": Port("B T HV V", doc="values with what the state already held taken off"),
        "final_state": Port("N HV K V", F32, unit="state/sequence_end"),
    },
    requires=("HV % H == 0",),
    flops="4 * B * T * HV * K * V",
)

SEGMENT = "chunk_delta_h_segment"


def reference(k, w, u, g, initial_state, *, C):
    """k [B, T, H, K], w [B, T, HV, K], u [B, T, HV, V], g [B, T, HV], initial_state [B, HV, K, V]."""
    B, T, HV, V = u.shape
    k = per_value_head(k, HV)
    S = u.new_zeros(B, HV, k.shape[-1], V) if initial_state is None else initial_state
    states, values = [u.new_zeros(B, 0, *S.shape[1:])], [u[:, :0]]
    for start in range(0, T, C):
        rows = slice(start, start + C)
        v_new = u[:, rows] - torch.einsum("bthk,bhkv->bthv", w[:, rows], S)
        states.append(S[:, None])
        values.append(v_new)
        k_end = k[:, rows]
        if g is not None:
            last = g[:, rows][:, -1:]
            k_end = torch.exp2(last - g[:, rows])[..., None] * k_end
            S = torch.exp2(last[:, 0])[..., None, None] * S
        S = S + torch.einsum("bthk,bthv->bhkv", k_end, v_new)
    return {"h": torch.cat(states, dim=1), "v_new": torch.cat(values, dim=1), "final_state": S}


def vjp(d_h, d_v_new, d_final_state, k, w, g, h, v_new, *, needs, C):
    """The reverse scan of _scan_vjp; d_u is the whole cotangent of v_new."""
    grads = scan_vjp(d_h, d_v_new, d_final_state, k, w, chunk_log_decay(g, None, v_new, C), h, v_new, C=C)
    return {name: x for name, x in {**grads, "u": grads["v"]}.items() if name in needs}


def launch(k, w, u, g, initial_state, h, v_new, final_state, *, C, seqs, config):
    return [state_scan(k, w, u, g, None, initial_state, h, v_new, final_state, C=C, seqs=seqs, config=config)]


def pieces_launch(k, w, u, g, initial_state, h, v_new, final_state, maps, passed, entered, *, C, seqs, config):
    if whole(k, seqs):
        return launch(k, w, u, g, initial_state, h, v_new, final_state, C=C, seqs=seqs, config=config)
    count = config["PIECES"]
    given = dict(C=C, seqs=cut(seqs, count), config=config)
    return [
        map_launch(k, w, g, None, maps, **given),
        state_scan(k, w, u, g, None, None, None, None, passed, **given),
        chain(maps, passed, initial_state, entered, final_state, count, io=k.dtype),
        state_scan(k, w, u, g, None, entered, h, v_new, None, **given),
    ]


def vjp_launch(
    d_h, d_v_new, d_final_state, k, w, g, h, v_new, d_k, d_w, d_u, d_g, d_initial_state, d_s, dg_parts,
    *, C, seqs, config,
):  # fmt: skip
    return scan_vjp_launches(
        d_h, d_v_new, d_final_state, k, w, g, None, h, v_new, d_k, d_w, d_u, d_g, d_initial_state, d_s, dg_parts,
        C=C, seqs=seqs, config=config,
    )  # fmt: skip


def pieces_vjp_launch(
    d_h, d_v_new, d_final_state, k, w, g, h, v_new, d_k, d_w, d_u, d_g, d_initial_state, d_s, dg_parts, maps, passed,
    entered, *, C, seqs, config,
):  # fmt: skip
    def scan(d_h, d_v_new, d_final_state, k, w, g, g_gamma, v_new, d_v, d_s, d_initial_state, b_end, **given):
        given["seqs"] = cut(seqs, config["PIECES"])
        return [
            map_launch(k, w, g, None, maps, **given),
            reverse_scan(d_h, d_v_new, None, k, w, g, None, v_new, None, None, passed, None, **given),
            chain(maps, passed, d_final_state, entered, d_initial_state, config["PIECES"], io=k.dtype, reverse=True),
            reverse_scan(d_h, d_v_new, entered, k, w, g, None, v_new, d_v, d_s, None, None, **given),
        ]

    return scan_vjp_launches(
        d_h, d_v_new, d_final_state, k, w, g, None, h, v_new, d_k, d_w, d_u, d_g, d_initial_state, d_s, dg_parts,
        C=C, seqs=seqs, config=config, scan=None if whole(k, seqs) else scan,
    )  # fmt: skip


LAUNCHERS = [
    Launcher("triton", launch, scan_configs, one_piece_limits),
    Launcher("pieces", pieces_launch, in_pieces(scan_configs), piece_limits, PIECES),
]
VJP_LAUNCHERS = [
    Launcher("triton", vjp_launch, scan_vjp_configs, one_piece_limits, SCRATCH),
    Launcher("pieces", pieces_vjp_launch, in_pieces(scan_vjp_configs), piece_limits, {**SCRATCH, **PIECES}),
]
