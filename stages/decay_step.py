"""Steps of gated linear attention with a linear decay per channel, in one kernel.

    S <- diag(g) S + k v        o = q S

S starts from initial_state, zeros when absent, and ends as final_state: T tokens at once are T steps of one.
"""

from ._contract import F32, Contract, Launcher, Port
from ._tiles import width_limits
from ._token_scan import OUTPUTS, STATES, token_scan, token_scan_configs, token_scan_launch

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV K", F32, unit="decay/linear/token"),
        **STATES,
    },
    outputs=OUTPUTS,
    requires=("HV % H == 0",),
    flops="5 * B * T * HV * K * V",
)


def reference(q, k, v, g, initial_state):
    """q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K], initial_state [B, HV, K, V]."""
    return token_scan(q, k, v, g, initial_state)


def launch(q, k, v, g, initial_state, o, final_state, *, seqs, config):
    return [
        token_scan_launch(q, k, v, g, initial_state, o, final_state, log=False, scale=1.0, seqs=seqs, config=config)
    ]


LAUNCHERS = [Launcher("triton", launch, token_scan_configs, width_limits)]
