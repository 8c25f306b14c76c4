"""Log decay per token and channel from a pre-activation, bounded below.

    g = bound sigmoid(z),   z = exp(A_log) (a + dt_bias)

bound lies in -5..0, without 0 itself. A_log is a head's, dt_bias a channel's. A_log counts up to 88, the last whole
number whose exp is finite in float32, and z from -100 to 100, where the sigmoid is 0 and 1 in float32: no inf * 0.
Beyond, the gradients are 0.
"""

import torch

from ._channel_gate import SCRATCH, gate_configs, gate_launch, gate_vjp_configs, gate_vjp_launches
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={"a": Port("B T HV K"), "A_log": Port("HV", F32), "dt_bias": Port("HV K", F32)},
    outputs={"g": Port("B T HV K", F32, unit="log_decay/ln/token", where="-5..0")},
    params={"bound": -5.0},
    requires=("bound >= -5", "bound < 0"),
    flops="6 * B * T * HV * K",
)


def slope(A_log):
    return torch.exp(A_log.clamp(max=88.0)).unsqueeze(-1)


def reference(a, A_log, dt_bias, *, bound):
    """a, g [B, T, HV, K]; A_log [HV]; dt_bias [HV, K]."""
    return {"g": bound * torch.sigmoid((slope(A_log) * (a + dt_bias)).clamp(-100.0, 100.0))}


def vjp(d_g, a, A_log, dt_bias, *, needs, bound):
    """With dz = bound sigmoid(z) sigmoid(-z) dg: d a = exp(A_log) dz, d dt_bias its sum, d A_log the sum of z dz."""
    z = slope(A_log) * (a + dt_bias)
    d_z = torch.where(z.abs() > 100.0, 0.0, bound * torch.sigmoid(z) * torch.sigmoid(-z) * d_g)
    d_a = slope(A_log) * d_z
    d_A_log = torch.where(A_log > 88.0, 0.0, (z.clamp(-100.0, 100.0) * d_z).sum(dim=(0, 1, 3)))
    grads = {"a": d_a, "A_log": d_A_log, "dt_bias": d_a.sum(dim=(0, 1))}
    return {name: x for name, x in grads.items() if name in needs}


def launch(a, A_log, dt_bias, g, *, bound, seqs, config):
    return gate_launch(a, A_log, dt_bias, g, bound, config=config)


def vjp_launch(d_g, a, A_log, dt_bias, d_a, d_A_log, d_dt_bias, sum_A_log, sum_dt_bias, *, bound, seqs, config):
    return gate_vjp_launches(
        d_g, a, A_log, dt_bias, d_a, d_A_log, d_dt_bias, sum_A_log, sum_dt_bias, bound, seqs=seqs, config=config
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, gate_configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, gate_vjp_configs, scratch=SCRATCH)]
