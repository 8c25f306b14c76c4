"""Steps of a delta rule with strengths per channel, on a square state, in one kernel.

    S <- S - diag(beta) (v k^T) S + diag(alpha) v k^T        o = q S

It is not Kimi Delta Attention, and does not continue its state: here the value picks the rows. k S is one vector, so
that each token changes the state by outer products alone. Without keys and values of length 1 the state grows without
end. S starts from initial_state, zeros when absent, and ends as final_state: T tokens at once are T steps of one.
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._tiles import padded, too_long
from ._token_scan import tile_configs

CONTRACT = Contract(
    inputs={
        "q": Port("B T H D"),
        "k": Port("B T H D", where="unit_norm(D)"),
        "v": Port("B T H D", where="unit_norm(D)"),
        "alpha": Port("B T H D", doc="strength of the write, per row of the state"),
        "beta": Port("B T H D", doc="strength of the correction, per row of the state"),
        "initial_state": Port("N H D D", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T H D"), "final_state": Port("N H D D", F32, unit="state/sequence_end")},
    flops="8 * B * T * H * D * D",
)


def reference(q, k, v, alpha, beta, initial_state):
    """q, k, v, alpha, beta [B, T, H, D], initial_state [B, H, D, D]."""
    B, T, H, D = v.shape
    S = v.new_zeros(B, H, D, D) if initial_state is None else initial_state
    write, correct, read = alpha * v, beta * v, [v[:, :0]]
    for t in range(T):
        held = (k[:, t].unsqueeze(-1) * S).sum(-2)
        S = S - correct[:, t].unsqueeze(-1) * held.unsqueeze(-2) + write[:, t].unsqueeze(-1) * k[:, t].unsqueeze(-2)
        read.append((q[:, t].unsqueeze(-1) * S).sum(-2).unsqueeze(1))
    return {"o": torch.cat(read, dim=1), "final_state": S}


def configs(axes, device):
    return tile_configs(axes["D"], axes["D"], 32, (4, 2, 1, 8))


def limits(axes, device):
    return too_long(axes, "D")


def launch(q, k, v, alpha, beta, initial_state, o, final_state, *, seqs, config):
    from ..kernels.rank_one_step import rank_one_step_kernel

    _, T, H, D = q.shape
    return [
        Launch(
            rank_one_step_kernel,
            grid=(seqs.N * H * ceil_div(D, config["TILE"]),),
            args=dict(
                q=q, k=k, v=v, alpha=alpha, beta=beta, initial_state=initial_state, o=o, final_state=final_state,
                cu_seqlens=seqs.cu_seqlens, T=T, H=H,
            ),
            constexprs=dict(D=D, BD=padded(D), BJ=config["TILE"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, limits)]
