"""Gated linear attention in one kernel, token by token: the serial form of gla's four stages, without products.

    S <- diag(exp(g)) S + k v        o = scale q S

The state stays in registers from a sequence's first token to its last. S starts from initial_state, zeros when
absent, and ends as final_state. arXiv:2312.06635.
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._tiles import width_limits
from ._token_scan import OUTPUTS, STATES, token_scan, token_scan_configs, token_scan_launch

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV K", F32, unit="log_decay/ln/token", where="<= 0"),
        **STATES,
    },
    outputs=OUTPUTS,
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="5 * B * T * HV * K * V",
)


def reference(q, k, v, g, initial_state, *, scale):
    """q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K], initial_state [B, HV, K, V]."""
    found = token_scan(q, k, v, torch.exp(g), initial_state)
    return {**found, "o": scale * found["o"]}


def launch(q, k, v, g, initial_state, o, final_state, *, scale, seqs, config):
    return [
        token_scan_launch(q, k, v, g, initial_state, o, final_state, log=True, scale=scale, seqs=seqs, config=config)
    ]


LAUNCHERS = [Launcher("triton", launch, token_scan_configs, width_limits)]
