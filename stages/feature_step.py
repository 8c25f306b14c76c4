"""Steps of linear attention on positive features, each output divided by its own length, in one kernel.

    S <- S + phi(k) v        y = phi(q) S        o = y / (norm(y + eps) + eps)        phi(x) = elu(x) + 1

The norm is L2 over V. Nothing decays. S starts from initial_state, zeros when absent, and ends as final_state: T
tokens at once are T steps of one.
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port
from ._tiles import padded, width_limits
from ._token_scan import OUTPUTS, STATES, tile_configs, token_scan

CONTRACT = Contract(
    inputs={"q": Port("B T H K"), "k": Port("B T H K"), "v": Port("B T HV V"), **STATES},
    outputs=OUTPUTS,
    params={"eps": 1e-6},
    requires=("HV % H == 0", "eps >= 0"),
    flops="4 * B * T * HV * K * V",
)


def features(x):
    """elu(x) + 1; below 0 that is exp(x), which adding 1 and taking it away would round."""
    return torch.where(x > 0, x + 1, torch.exp(x.clamp(max=0)))


def reference(q, k, v, initial_state, *, eps):
    """q, k [B, T, H, K], v [B, T, HV, V], initial_state [B, HV, K, V]."""
    found = token_scan(features(q), features(k), v, None, initial_state)
    y = found["o"]
    length = (y + eps).square().sum(-1, keepdim=True).sqrt()
    return {**found, "o": y / (length + eps)}


def configs(axes, device):
    """WAITING: copies of y in memory, none where one tile of the state holds V whole."""
    tiles = tile_configs(axes["K"], axes["V"], 64, (8, 4))
    return [{**each, "WAITING": int(each["TILE"] < axes["V"])} for each in tiles]


def launch(q, k, v, initial_state, o, final_state, y, *, eps, seqs, config):
    from ..kernels.feature_step import feature_step_kernel

    (_, T, H, K), (HV, V) = q.shape, v.shape[2:]
    return [
        Launch(
            feature_step_kernel,
            grid=(seqs.N * HV,),
            args=dict(
                q=q, k=k, v=v, initial_state=initial_state, o=o, final_state=final_state, y=y,
                cu_seqlens=seqs.cu_seqlens, eps=eps, T=T, H=H, HV=HV,
            ),
            constexprs=dict(K=K, V=V, BK=padded(K), BV=config["TILE"], BY=padded(V)),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


SCRATCH = {"y": Port("WAITING B T HV V", F32, doc="outputs before their norm is known")}
LAUNCHERS = [Launcher("triton", launch, configs, width_limits, SCRATCH)]
