"""Gradients of chunk_h and chunk_o in one, each by a scan of the same form over the chunks, its state on chip.

With d = scale d_o, gam = 2^g, ga = 2^(g_C - g) and E[i, j] = 2^(g_i - g_j) for j <= i, else 0:

    d_q_i = gam_i d_i S^T + sum over j of E_ij <d_i, v_j> k_j           S  <- 2^g_C S + sum over j of ga_j k_j^T v_j
    d_k_j = ga_j v_j dS^T + sum over i of E_ij <d_i, v_j> q_i           dS <- 2^g_C dS + sum over i of gam_i q_i^T d_i
    d_v_j = ga_j k_j dS   + sum over i of E_ij <q_i, k_j> d_i

The first goes forward from initial_state, the others backward from d_final_state; zeros when absent. dS ends as
d_initial_state. h and d_s, the states that enter the chunks and the cotangents of those that leave them, are for the
gate's gradient (chunk_gate_grads). Slopes g_gamma are constants. arXiv:2312.06635.
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._decay import chunk_log_decay, pair_decay, per_key_head, per_value_head
from ._scan_grads import scan_grads, scan_grads_configs, scan_grads_limits
from ._sum_parts import group_sums

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "g_gamma": Port("HV", F32, unit="log_decay/ln/slope", where="<= 0", optional=True),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
        "d_o": Port("B T HV V"),
        "d_final_state": Port("N HV K V", F32, unit="cotangent/state/sequence_end", optional=True),
    },
    outputs={
        "d_q": Port("B T H K"),
        "d_k": Port("B T H K"),
        "d_v": Port("B T HV V"),
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "d_s": Port("B NT HV K V", unit="cotangent/state/chunk_exit"),
        "d_initial_state": Port("N HV K V", F32, unit="cotangent/state/sequence_start"),
    },
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="6 * B * T * HV * (2 * K * V + C * (K + V))",
)

GRADIENT_OF = """
inputs:
  q: B T H K
  k: B T H K
  v: B T HV V
  g: {shape: B T HV, dtype: f32, unit: log_decay/log2/chunk_sum, where: non_increasing(T in chunk), optional: true}
  g_gamma: {shape: HV, dtype: f32, unit: log_decay/ln/slope, where: <= 0, optional: true}
  initial_state: {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
params: {scale: 1}
stages:
  scan: {use: chunk_h, in: {k: k, v: v, g: g, g_gamma: g_gamma, initial_state: initial_state}}
  out:  {use: chunk_o, in: {q: q, k: k, v: v, h: scan.h, g: g, g_gamma: g_gamma}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""

GRADIENT = """
stages:
  grads:
    use: chunk_h_o_grads
    in:
      {q: q, k: k, v: v, g: g, g_gamma: g_gamma, initial_state: initial_state, d_o: d_o, d_final_state: d_final_state}
    with: {scale: scale}
  gate:
    use: chunk_gate_grads
    in: {q: q, k: k, v: v, g: g, g_gamma: g_gamma, d_o: d_o, h: grads.h, d_s: grads.d_s}
    with: {scale: scale}
outputs: {d_q: grads.d_q, d_k: grads.d_k, d_v: grads.d_v, d_g: gate.d_g, d_initial_state: grads.d_initial_state}
"""

FASTER_ON = ("sm_90",)
SEGMENT = "chunk_h_reverse_segment"


def reference(q, k, v, g, g_gamma, initial_state, d_o, d_final_state, *, scale, C):
    """q, k [B, T, H, K], v, d_o [B, T, HV, V], g [B, T, HV], g_gamma [HV], states [B, HV, K, V]."""
    H, HV = q.shape[2], v.shape[2]
    q, k, d = per_value_head(q, HV), per_value_head(k, HV), scale * d_o
    b = chunk_log_decay(g, g_gamma, v, C)
    none = v.new_zeros(v.shape[0], HV, k.shape[-1], v.shape[-1])
    S = none if initial_state is None else initial_state
    dS = none if d_final_state is None else d_final_state
    d_q, h, _ = scan(d, v, k, b, S.mT, C)
    d_k, d_s, _ = scan(v, d, q, b, dS.mT, C, backward=True)
    d_v, _, first = scan(k, q, d, b, dS, C, backward=True)
    return {
        "d_q": per_key_head(d_q, H), "d_k": per_key_head(d_k, H), "d_v": d_v, "h": h.mT, "d_s": d_s.mT,
        "d_initial_state": first,
    }  # fmt: skip


def scan(x, y, z, b, S, C, backward=False):
    """What queries x read of keys y and values z up to theirs, or from theirs on: (rows, the state that each chunk
    meets, the last one)."""
    outs, states = [z[:, :0]], [z.new_zeros(z.shape[0], 0, *S.shape[1:])]
    for start in range(0, z.shape[1], C)[:: -1 if backward else 1]:
        rows = slice(start, start + C)
        last, E = b[:, rows][:, -1:], pair_decay(b[:, rows])
        gam, ga = torch.exp2(b[:, rows])[..., None], torch.exp2(last - b[:, rows])[..., None]
        read, write, E = (ga, gam, E.mT) if backward else (gam, ga, E)
        scores = E * torch.einsum("bihx,bjhx->bhij", x[:, rows], y[:, rows])
        out = read * torch.einsum("bthx,bhxz->bthz", x[:, rows], S)
        states.append(S[:, None])
        outs.append(out + torch.einsum("bhij,bjhz->bihz", scores, z[:, rows]))
        S = torch.exp2(last[:, 0])[..., None, None] * S
        S = S + torch.einsum("bthx,bthz->bhxz", write * y[:, rows], z[:, rows])
    if backward:
        outs, states = outs[::-1], states[::-1]
    return torch.cat(outs, dim=1), torch.cat(states, dim=1), S


def launch(
    q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state,
    *, scale, C, seqs, config,
):  # fmt: skip
    return scan_grads(
        q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state,
        scale, C, seqs, config,
    )  # fmt: skip


def launch_by_head(
    q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state, dq_heads, dk_heads,
    *, scale, C, seqs, config,
):  # fmt: skip
    """The same where value heads share keys: each by itself, then their sums."""
    sums = [(heads, total) for heads, total in ((dq_heads, d_q), (dk_heads, d_k)) if total is not None]
    dq_heads, dk_heads = None if d_q is None else dq_heads, None if d_k is None else dk_heads
    by_head = scan_grads(
        q, k, v, g, g_gamma, initial_state, d_o, d_final_state, dq_heads, dk_heads, d_v, h, d_s, d_initial_state,
        scale, C, seqs, config,
    )  # fmt: skip
    return by_head + [group_sums(heads, total) for heads, total in sums]


def keys_of_their_own(axes, device):
    """None, or why scans that give each value head's share refuse these sizes."""
    shared = axes["H"] != axes["HV"]
    return f"H = {axes['H']}, HV = {axes['HV']}: keys are shared" if shared else scan_grads_limits(axes, device)


BY_HEAD = {
    "dq_heads": Port("B T HV K", doc="d_q by value head"),
    "dk_heads": Port("B T HV K", doc="d_k by value head"),
}
LAUNCHERS = [
    Launcher("triton", launch, scan_grads_configs, keys_of_their_own),
    Launcher("by head", launch_by_head, scan_grads_configs, scan_grads_limits, BY_HEAD),
]
