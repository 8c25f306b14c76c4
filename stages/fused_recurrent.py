"""Linear attention with a decay, token by token in one kernel.

    S <- exp(g + g_gamma) S + k^T v        o = scale q S

g is a natural log decay per token, g_gamma one fixed for a head; both given, they add; with neither nothing decays.
"""

from ._contract import F32, Contract, Launcher, Port
from ._fused_recurrent import head_decay, linear_launch, recurrence, recurrent_configs, recurrent_limits

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV", F32, unit="log_decay/ln/token", where="<= 0", optional=True),
        "g_gamma": Port("HV", F32, unit="log_decay/ln/slope", where="<= 0", optional=True),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="5 * B * T * HV * K * V",
)

REPLACES = """
stages:
  cumsum: {use: chunk_local_cumsum, in: {x: g}}
  scan:   {use: chunk_h, in: {k: k, v: v, g: cumsum.y, g_gamma: g_gamma, initial_state: initial_state}}
  out:    {use: chunk_o, in: {q: q, k: k, v: v, h: scan.h, g: cumsum.y, g_gamma: g_gamma}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""


def reference(q, k, v, g, g_gamma, initial_state, *, scale):
    """q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV], g_gamma [HV], initial_state [B, HV, K, V]."""
    return recurrence(q, k, v, head_decay(g, g_gamma, v), None, initial_state, scale)


def launch(q, k, v, g, g_gamma, initial_state, o, final_state, *, scale, seqs, config):
    return linear_launch(
        q, k, v, g, g_gamma, None, initial_state, None, o, final_state, scale=scale, seqs=seqs, config=config
    )


LAUNCHERS = [Launcher("triton", launch, recurrent_configs, recurrent_limits)]
