"""Log decay per token and channel from a pre-activation, as Kimi Delta Attention computes it.

    g = -exp(A_log) softplus(a + dt_bias)

A_log is a head's, dt_bias a channel's. Computed as decay_gate does it: no inf * 0, and g stays finite.
arXiv:2510.26692.
"""

from . import decay_gate
from ._channel_gate import SCRATCH, gate_configs, gate_launch, gate_vjp_configs, gate_vjp_launches
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={"a": Port("B T HV K"), "A_log": Port("HV", F32), "dt_bias": Port("HV K", F32)},
    outputs={"g": Port("B T HV K", F32, unit="log_decay/ln/token", where="<= 0")},
    flops="8 * B * T * HV * K",
)


def reference(a, A_log, dt_bias):
    """a, g [B, T, HV, K]; A_log [HV]; dt_bias [HV, K]."""
    return decay_gate.reference(a, A_log.unsqueeze(-1), dt_bias)


def vjp(d_g, a, A_log, dt_bias, *, needs):
    """decay_gate's, with d A_log summed over the head's channels."""
    grads = decay_gate.vjp(d_g, a, A_log.unsqueeze(-1), dt_bias, needs=needs)
    return {name: x.sum(-1) if name == "A_log" else x for name, x in grads.items()}


def launch(a, A_log, dt_bias, g, *, seqs, config):
    return gate_launch(a, A_log, dt_bias, g, None, config=config)


def vjp_launch(d_g, a, A_log, dt_bias, d_a, d_A_log, d_dt_bias, sum_A_log, sum_dt_bias, *, seqs, config):
    return gate_vjp_launches(
        d_g, a, A_log, dt_bias, d_a, d_A_log, d_dt_bias, sum_A_log, sum_dt_bias, None, seqs=seqs, config=config
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, gate_configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, gate_vjp_configs, scratch=SCRATCH)]
