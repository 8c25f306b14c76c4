"""Scan over chunks under the delta rule that emits the output: recompute_w_u, chunk_delta_h and chunk_o in one kernel.

    v_new = Ai beta (v - 2^g k S)                      the chunk's values, corrected by the entering state S
    o     = scale (2^g q S + (E * q k^T) v_new)        E[i, j] = 2^(g_i - g_j) for j <= i, else 0
    S    <- 2^(g_C) S + sum over j of 2^(g_C - g_j) k_j^T v_new_j

Neither w, u, v_new nor the states go through memory. Without g nothing decays. arXiv:2412.06464.
Long sequences of few heads are scanned in pieces (_piece_starts.py).
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._decay import pair_decay, per_value_head
from ._handover import HANDED, handed_over, over_parts
from ._piece_launches import entering, over_pieces
from ._piece_starts import SCRATCH, in_pieces, unless_cut, where_cut
from ._pieces import whole
from ._scan_o import delta_o_limits, scan_o, scan_o_configs

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "beta": Port("B T HV"),
        "Ai": Port("B T HV C", unit="gram/unit_lower_inverse/{gating}"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="B * T * HV * (6 * K * V + 2 * C * (K + 2 * V))",
    presence={"gating": ("g", "gated", "ungated")},
)

FUSES = """
stages:
  wy:   {use: recompute_w_u, in: {k: k, v: v, beta: beta, Ai: Ai, g: g}}
  scan: {use: chunk_delta_h, in: {k: k, w: wy.w, u: wy.u, g: g, initial_state: initial_state}}
  out:  {use: chunk_o,       in: {q: q, k: k, v: scan.v_new, h: scan.h, g: g}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""

FASTER_ON = ("sm_90",)
SEGMENT = "chunk_delta_states_segment"


def reference(q, k, v, beta, Ai, g, initial_state, *, scale, C):
    """q, k [B, T, H, K], v [B, T, HV, V], beta, g [B, T, HV], Ai [B, T, HV, C], initial_state [B, HV, K, V]."""
    B, T, HV, V = v.shape
    q, k = per_value_head(q, HV), per_value_head(k, HV)
    b = torch.zeros_like(beta) if g is None else g
    S = v.new_zeros(B, HV, k.shape[-1], V) if initial_state is None else initial_state
    parts = [v[:, :0]]
    for start in range(0, T, C):
        rows = slice(start, start + C)
        b_q, b_k, b_g = q[:, rows], k[:, rows], b[:, rows]
        gam, n = torch.exp2(b_g)[..., None], b_g.shape[1]
        inverse = Ai[:, rows, :, :n].transpose(1, 2).tril()
        held = gam * torch.einsum("bthk,bhkv->bthv", b_k, S)
        v_new = torch.einsum("bhij,bjhv->bihv", inverse, beta[:, rows, :, None] * (v[:, rows] - held))
        scores = torch.einsum("bihk,bjhk->bhij", b_q, b_k) * pair_decay(b_g)
        read = gam * torch.einsum("bthk,bhkv->bthv", b_q, S)
        parts.append(scale * (read + torch.einsum("bhij,bjhv->bihv", scores, v_new)))
        last = b_g[:, -1:]
        k_end = torch.exp2(last - b_g)[..., None] * b_k
        S = torch.exp2(last[:, 0])[..., None, None] * S + torch.einsum("bthk,bthv->bhkv", k_end, v_new)
    return {"o": torch.cat(parts, dim=1), "final_state": S}


def scan(q, k, v, beta, Ai, g, initial_state, o, final_state, scale, C, seqs, config):
    return [scan_o(q, k, v, beta, Ai, g, None, initial_state, o, final_state, scale, C, seqs, config)]


def launch(q, k, v, beta, Ai, g, initial_state, o, final_state, turns, handed, *, scale, C, seqs, config):
    launches = scan(q, k, v, beta, Ai, g, initial_state, o, final_state, scale, C, seqs, config)
    return over_parts(launches, turns, handed, k, seqs)


def pieces_launch(
    q, k, v, beta, Ai, g, initial_state, o, final_state, starts, maps, passed, entered, *, scale, C, seqs, config
):  # fmt: skip
    launches = scan(q, k, v, beta, Ai, g, initial_state, o, final_state, scale, C, seqs, config)
    if whole(k, seqs):
        return launches
    before, starts = entering(k, v, beta, Ai, g, initial_state, starts, maps, passed, entered, C=C)
    return [*before, over_pieces(launches[0], starts, entered)]


LAUNCHERS = [
    Launcher("triton", launch, handed_over(scan_o_configs), unless_cut(delta_o_limits), HANDED, always=("o",)),
    Launcher(
        "pieces", pieces_launch, in_pieces(scan_o_configs, groups=3), where_cut(delta_o_limits), SCRATCH,
        always=("o",),
    ),
]  # fmt: skip
