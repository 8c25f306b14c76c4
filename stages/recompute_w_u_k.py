"""What the rows of each chunk read and write under a decay per channel, the dependences among them resolved (WY form).

    w = Ai (beta kb)    u = Ai (beta v)

kb = 2^b k carries the decay already, so recompute_w_u without a gate does it.
"""

from . import recompute_w_u
from ._contract import Contract, Launcher, Port
from ._tiles import chunk_limits

CONTRACT = Contract(
    inputs={
        "kb": Port("B T HV K", unit="key/decayed"),
        "v": Port("B T HV V"),
        "beta": Port("B T HV"),
        "Ai": Port("B T HV C", unit="gram/unit_lower_inverse/gated"),
    },
    outputs={
        "w": Port("B T HV K", unit="wy/decayed_key"),
        "u": Port("B T HV V", unit="wy/value"),
    },
    flops="2 * B * T * HV * C * (K + V)",
)


def reference(kb, v, beta, Ai, *, C):
    """kb [B, T, HV, K], v [B, T, HV, V], beta [B, T, HV], Ai [B, T, HV, C]."""
    return recompute_w_u.reference(kb, v, beta, Ai, None, C=C)


def vjp(d_w, d_u, kb, v, beta, Ai, *, needs, C):
    asked = frozenset("k" if name == "kb" else name for name in needs)
    grads = recompute_w_u.vjp(d_w, d_u, kb, v, beta, Ai, None, needs=asked, C=C)
    return {"kb" if name == "k" else name: x for name, x in grads.items()}


def launch(kb, v, beta, Ai, w, u, *, C, seqs, config):
    return recompute_w_u.launch(kb, v, beta, Ai, None, w, u, C=C, seqs=seqs, config=config)


def vjp_launch(d_w, d_u, kb, v, beta, Ai, d_kb, d_v, d_beta, d_Ai, *, C, seqs, config):
    return recompute_w_u.vjp_launch(
        d_w, d_u, kb, v, beta, Ai, None, d_kb, d_v, d_beta, d_Ai, None, C=C, seqs=seqs, config=config
    )


LAUNCHERS = [Launcher("triton", launch, recompute_w_u.configs, chunk_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, recompute_w_u.vjp_configs, chunk_limits)]
