"""Token after token through a state in registers, for the stages that have no chunks."""

import torch

from ._contract import F32, Launch, Port, ceil_div
from ._decay import per_value_head
from ._tiles import padded

STATES = {"initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True)}
OUTPUTS = {"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")}


def token_scan(q, k, v, decay, initial_state):
    """S <- diag(decay) S + k v, o = q S for each token.

    q, k [B, T, H, K], v [B, T, HV, V], decay [B, T, HV, K] or None, initial_state [B, HV, K, V] or None.
    """
    HV, S = v.shape[2], initial_state
    q, k = per_value_head(q, HV), per_value_head(k, HV)
    if S is None:
        S = v.new_zeros(v.shape[0], HV, k.shape[-1], v.shape[-1])
    read = [v[:, :0]]
    decays = [None] * v.shape[1] if decay is None else decay.unbind(1)
    for q_t, k_t, v_t, decay_t in zip(q.unbind(1), k.unbind(1), v.unbind(1), decays):
        if decay is not None:
            S = decay_t.unsqueeze(-1) * S
        S = S + k_t.unsqueeze(-1) * v_t.unsqueeze(-2)
        read.append((q_t.unsqueeze(-1) * S).sum(-2).unsqueeze(1))
    return {"o": torch.cat(read, dim=1), "final_state": S}


def tile_configs(whole, cut, per_thread, warps):
    """Tiles of a state: one axis whole, TILE of the other, so many numbers a thread. Of fewer than 8 in a row, memory
    would fetch more than is used."""
    tiles = [(min(padded(cut), 32 * count * per_thread // padded(whole)), count) for count in warps]
    return [{"TILE": tile, "num_warps": count, "num_stages": 1} for tile, count in tiles if tile >= 8]


def token_scan_configs(axes, device):
    return tile_configs(axes["K"], axes["V"], 32, (4, 2, 1, 8))


def token_scan_launch(q, k, v, g, initial_state, o, final_state, *, log, scale, seqs, config):
    """log: whether g is the natural log of the decay, or the decay itself."""
    from ..kernels.token_scan import token_scan_kernel

    (_, T, H, K), (HV, V) = q.shape, v.shape[2:]
    return Launch(
        token_scan_kernel,
        grid=(seqs.N * HV * ceil_div(V, config["TILE"]),),
        args=dict(
            q=q, k=k, v=v, g=g, initial_state=initial_state, o=o, final_state=final_state,
            cu_seqlens=seqs.cu_seqlens, scale=scale, T=T, H=H, HV=HV,
        ),
        constexprs=dict(K=K, V=V, BK=padded(K), BV=config["TILE"], LOG=log),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
