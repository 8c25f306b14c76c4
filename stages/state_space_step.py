"""Steps of a selective state-space model (Mamba-2's recurrence with a decay per channel and state), in one kernel.

    h <- exp(dt A) h + (dt x) b        o = sum over the states of h c        A = -exp(A_log)

DI channels have NS states each; b and c are shared by all channels. dt is positive already. A_log counts up to 88, the
last whole number whose exp is finite in float32: no inf * 0 where dt is 0. h starts from initial_state, zeros when
absent, and ends as final_state: T tokens at once are T steps of one. arXiv:2405.21060.
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._tiles import padded, too_long
from ._token_scan import tile_configs

CONTRACT = Contract(
    inputs={
        "x": Port("B T DI"),
        "dt": Port("B T DI", where=">= 0"),
        "A_log": Port("DI NS", F32),
        "b": Port("B T NS", doc="what the states are written by"),
        "c": Port("B T NS", doc="what the states are read by"),
        "initial_state": Port("N DI NS", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T DI"), "final_state": Port("N DI NS", F32, unit="state/sequence_end")},
    flops="7 * B * T * DI * NS",
)


def reference(x, dt, A_log, b, c, initial_state):
    """x, dt [B, T, DI], A_log [DI, NS], b, c [B, T, NS], initial_state [B, DI, NS]."""
    A = -torch.exp(A_log.clamp(max=88.0))
    h = x.new_zeros(x.shape[0], *A_log.shape) if initial_state is None else initial_state
    write, read = dt * x, [x[:, :0]]
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t].unsqueeze(-1) * A) * h + write[:, t].unsqueeze(-1) * b[:, t].unsqueeze(-2)
        read.append((h * c[:, t].unsqueeze(-2)).sum(-1).unsqueeze(1))
    return {"o": torch.cat(read, dim=1), "final_state": h}


def configs(axes, device):
    """A thread holds as many numbers of A as of h."""
    return tile_configs(axes["NS"], axes["DI"], 16, (4, 2, 8))


def limits(axes, device):
    return too_long(axes, "NS")


def launch(x, dt, A_log, b, c, initial_state, o, final_state, *, seqs, config):
    from ..kernels.state_space_step import state_space_step_kernel

    (_, T, DI), NS = x.shape, b.shape[-1]
    return [
        Launch(
            state_space_step_kernel,
            grid=(seqs.N * ceil_div(DI, config["TILE"]),),
            args=dict(
                x=x, dt=dt, A_log=A_log, b=b, c=c, initial_state=initial_state, o=o, final_state=final_state,
                cu_seqlens=seqs.cu_seqlens, T=T, DI=DI,
            ),
            constexprs=dict(NS=NS, BD=config["TILE"], BN=padded(NS)),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, limits)]
