"""The gated delta rule token by token in one kernel.

    S <- exp(g) S        S <- S + k^T beta (v - k S)        o = scale q S

Without g nothing decays: the delta rule. arXiv:2412.06464, arXiv:2406.06484.
"""

from ._contract import F32, Contract, Launcher, Port
from ._fused_recurrent import head_decay, linear_launch, recurrence, recurrent_configs, recurrent_limits

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV", F32, unit="log_decay/ln/token", where="<= 0", optional=True),
        "beta": Port("B T HV"),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="7 * B * T * HV * K * V",
)

REPLACES = """
stages:
  cumsum: {use: chunk_local_cumsum,   in: {x: g}}
  kkt:    {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: cumsum.y}}
  solve:  {use: solve_tril,           in: {A: kkt.A}}
  wy:     {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: cumsum.y}}
  scan:   {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: cumsum.y, initial_state: initial_state}}
  out:    {use: chunk_o,              in: {q: q, k: k, v: scan.v_new, h: scan.h, g: cumsum.y}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""


def reference(q, k, v, g, beta, initial_state, *, scale):
    """q, k [B, T, H, K], v [B, T, HV, V], g, beta [B, T, HV], initial_state [B, HV, K, V]."""
    return recurrence(q, k, v, head_decay(g, None, v), beta, initial_state, scale)


def launch(q, k, v, g, beta, initial_state, o, final_state, *, scale, seqs, config):
    return linear_launch(
        q, k, v, g, None, beta, initial_state, None, o, final_state, scale=scale, seqs=seqs, config=config
    )


LAUNCHERS = [Launcher("triton", launch, recurrent_configs, recurrent_limits)]
