"""Scan over chunk states under the delta rule from the inverse: recompute_w_u and chunk_delta_h in one kernel.

    h[n]  = S                                         the state that enters chunk n
    v_new = Ai beta (v - 2^g k S)                     the chunk's values, corrected
    S    <- 2^(g_C) S + sum over j of 2^(g_C - g_j) k_j^T v_new_j

Neither w nor u goes through memory. Without g nothing decays. arXiv:2412.06464.
Long sequences of few heads are scanned in pieces (_piece_starts.py).
"""

from dataclasses import replace

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._decay import per_value_head
from ._hopper import hopper_first, on_hopper
from ._piece_launches import entering, over_pieces
from ._piece_starts import SCRATCH, in_pieces, unless_cut, where_cut
from ._pieces import one_piece_limits, whole
from ._scan import delta_scan_configs
from ._tiles import by_dtype, precision

CONTRACT = Contract(
    inputs={
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "beta": Port("B T HV"),
        "Ai": Port("B T HV C", unit="gram/unit_lower_inverse/{gating}"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "v_new": Port("B T HV V", doc="values with what the state already held taken off"),
        "final_state": Port("N HV K V", F32, unit="state/sequence_end"),
    },
    requires=("HV % H == 0",),
    flops="B * T * HV * (4 * K * V + 2 * C * V)",
    presence={"gating": ("g", "gated", "ungated")},
)

FUSES = """
stages:
  wy:   {use: recompute_w_u, in: {k: k, v: v, beta: beta, Ai: Ai, g: g}}
  scan: {use: chunk_delta_h, in: {k: k, w: wy.w, u: wy.u, g: g, initial_state: initial_state}}
outputs: {h: scan.h, v_new: scan.v_new, final_state: scan.final_state}
"""

FASTER_ON = ("sm_90",)
SEGMENT = "chunk_delta_states_segment"


def reference(k, v, beta, Ai, g, initial_state, *, C):
    """k [B, T, H, K], v [B, T, HV, V], beta, g [B, T, HV], Ai [B, T, HV, C], initial_state [B, HV, K, V]."""
    B, T, HV, V = v.shape
    k = per_value_head(k, HV)
    b = torch.zeros_like(beta) if g is None else g
    S = v.new_zeros(B, HV, k.shape[-1], V) if initial_state is None else initial_state
    states, values = [v.new_zeros(B, 0, *S.shape[1:])], [v[:, :0]]
    for start in range(0, T, C):
        rows = slice(start, start + C)
        b_k, b_g = k[:, rows], b[:, rows]
        inverse = Ai[:, rows, :, : b_g.shape[1]].transpose(1, 2).tril()
        held = torch.exp2(b_g)[..., None] * torch.einsum("bthk,bhkv->bthv", b_k, S)
        v_new = torch.einsum("bhij,bjhv->bihv", inverse, beta[:, rows, :, None] * (v[:, rows] - held))
        states.append(S[:, None])
        values.append(v_new)
        last = b_g[:, -1:]
        k_end = torch.exp2(last - b_g)[..., None] * b_k
        S = torch.exp2(last[:, 0])[..., None, None] * S + torch.einsum("bthk,bthv->bhkv", k_end, v_new)
    return {"h": torch.cat(states, dim=1), "v_new": torch.cat(values, dim=1), "final_state": S}


def launch(k, v, beta, Ai, g, initial_state, h, v_new, final_state, *, C, seqs, config):
    return [states_launch(k, v, beta, Ai, g, initial_state, h, v_new, final_state, C=C, seqs=seqs, config=config)]


def states_launch(k, v, beta, Ai, g, initial_state, h, v_new, final_state, *, C, seqs, config, forgotten=None):
    """Without v nothing is written, and the state that the scan starts from is the identity [K, K]. forgotten [N, HV]:
    for final_state alone, chunks that need not be scanned (_forgotten.py)."""
    from ..kernels.chunk_delta_states import chunk_delta_states_kernel

    (H, K), HV = k.shape[2:], beta.shape[2]
    V = K if v is None else v.shape[3]
    BV = by_dtype(config, "BV", k.dtype, V)
    scan = Launch(
        chunk_delta_states_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            k=k, v=v, beta=beta, Ai=Ai, g=g, initial_state=initial_state, h=h, v_new=v_new, final_state=final_state,
            forgotten=forgotten, cu_seqlens=seqs.cu_seqlens, chunk_offsets=seqs.chunk_offsets, T=seqs.T, NT=seqs.NT,
            H=H, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BK=by_dtype(config, "BK", k.dtype, K), BV=BV, PRECISION=precision(k.dtype)),
        num_warps=by_dtype(config, "num_warps", k.dtype),
        num_stages=by_dtype(config, "num_stages", k.dtype),
    )  # fmt: skip
    if by_dtype(config, "gluon", k.dtype):
        from ..kernels.chunk_delta_states_sm90 import chunk_delta_states_sm90_kernel

        whole_ones = {**scan.args, "starts": None, "entered": None, "pieces": 1}
        return on_hopper(replace(scan, args=whole_ones), chunk_delta_states_sm90_kernel)
    return scan


def pieces_launch(
    k, v, beta, Ai, g, initial_state, h, v_new, final_state, starts, maps, passed, entered, *, C, seqs, config
):  # fmt: skip
    [scan] = launch(k, v, beta, Ai, g, initial_state, h, v_new, final_state, C=C, seqs=seqs, config=config)
    if whole(k, seqs):
        return [scan]
    before, starts = entering(k, v, beta, Ai, g, initial_state, starts, maps, passed, entered, C=C)
    return [*before, over_pieces(scan, starts, entered)]


configs = hopper_first(delta_scan_configs, BV=64, num_warps=4, num_stages=2)
LAUNCHERS = [
    Launcher("triton", launch, configs, unless_cut(one_piece_limits)),
    Launcher("pieces", pieces_launch, in_pieces(configs, gluon=1), where_cut(one_piece_limits), SCRATCH),
]
