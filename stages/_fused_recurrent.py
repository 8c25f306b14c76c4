"""What the one-kernel recurrences share: the loop over tokens, states in numbered slots, and the launch.

The state is read once and written once, whatever the number of tokens; it pays where tokens are few. A slotted form
keeps the states of many sequences in one tensor [SLOTS, HV, K, V]: sequence n owns row state_indices[n], its own
number when no indices are given; -1 owns none, its outputs are 0 and nothing of the states is read or written.
"""

import torch

from ._contract import F32, INT, Launch, Port, ceil_div
from ._decay import per_value_head
from ._tiles import padded

STATES = {
    "state": Port("SLOTS HV K V", F32, unit="state/slot"),
    "state_indices": Port("N", INT, unit="index/slot", where="slots", optional=True),
}
NEW_STATES = {"new_state": Port("SLOTS HV K V", F32, unit="state/slot", mutates="state")}


def recurrence(q, k, v, decay, beta, state, scale):
    """o [B, T, HV, V] and the state after the last token. decay: the state's factor, [B, T, HV, K or 1], or None."""
    T, HV = v.shape[1:3]
    q, k = per_value_head(q, HV), per_value_head(k, HV)
    S, o = v.new_zeros(v.shape[0], HV, k.shape[-1], v.shape[-1]) if state is None else state, []
    for t in range(T):
        S = S if decay is None else decay[:, t, ..., None] * S
        write = v[:, t]
        if beta is not None:
            write = beta[:, t, :, None] * (write - torch.einsum("bhk,bhkv->bhv", k[:, t], S))
        S = S + torch.einsum("bhk,bhv->bhkv", k[:, t], write)
        o.append(scale * torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    return {"o": torch.stack(o, dim=1) if o else v[:, :0], "final_state": S}


def head_decay(g, g_gamma, like):
    """exp of a natural log decay per token [B, T, HV] and of a slope [HV], as ``recurrence`` takes it."""
    if g is None and g_gamma is None:
        return None
    total = like.new_zeros(like.shape[:-1]) if g is None else g
    return torch.exp(total if g_gamma is None else total + g_gamma)[..., None]


def in_slots(recur, state, state_indices, N):
    """recur (initial state -> outputs) on the rows that N sequences own, and all states after it."""
    rows = torch.arange(N, device=state.device) if state_indices is None else state_indices.long()
    live = (rows >= 0) & (rows < len(state))
    there = state if len(state) else state.new_zeros(1, *state.shape[1:])
    outputs = recur(torch.where(live[:, None, None, None], there[rows.clamp(0, len(there) - 1)], 0.0))
    o = torch.where(live[:, None, None, None], outputs["o"], 0.0)
    return {"o": o, "new_state": state.index_copy(0, rows[live], outputs["final_state"][live])}


def recurrent_configs(axes, device):
    """The whole of K in registers, BV columns of the state a program."""
    return [{"BV": BV, "num_warps": warps, "num_stages": stages} for BV, warps, stages in ((16, 4, 2), (8, 2, 2))]


def recurrent_limits(axes, device):
    """None, or why a kernel that holds K on chip refuses these sizes."""
    over = [f"{axis} = {axes[axis]}: at most 256" for axis in ("K", "V") if axes[axis] > 256]
    return over[0] if over else None


def recurrent_launch(kernel, tensors, v, K, H, states, seqs, config, **constexprs):
    """The one launch. v: [B, T, HV, V]; states: how many there are."""
    _, T, HV, V = v.shape
    BV = min(config["BV"], padded(V))
    return [
        Launch(
            kernel,
            grid=(seqs.N * HV * ceil_div(V, BV),),
            args=dict(**tensors, cu_seqlens=seqs.cu_seqlens, T=T, slots=states, H=H, HV=HV),
            constexprs=dict(K=K, V=V, BK=padded(K), BV=BV, **constexprs),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


def linear_launch(
    q, k, v, g, g_gamma, beta, state, state_indices, o, end_state, *, scale, seqs, config, per_channel=False
):
    from ..kernels.fused_recurrent import fused_recurrent_kernel

    tensors = dict(
        q=q, k=k, v=v, g=g, g_gamma=g_gamma, beta=beta, state=state, state_indices=state_indices, o=o,
        end_state=end_state, scale=scale,
    )  # fmt: skip
    states = seqs.N if state is None else state.shape[0]
    H, K = q.shape[2:]
    return recurrent_launch(fused_recurrent_kernel, tensors, v, K, H, states, seqs, config, PER_CHANNEL=per_channel)
