"""Inputs of a state-space model, each times the length of its time step.

    v = softplus(dt + dt_bias) x

One step length per token and value head; the decay of the state over the same step is decay_gate's.
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._head_sums import PARTS, SCRATCH, head_sums
from ._rows import over_rows, row_configs

CONTRACT = Contract(
    inputs={"x": Port("B T HV V"), "dt": Port("B T HV", doc="step before the softplus"), "dt_bias": Port("HV", F32)},
    outputs={"v": Port("B T HV V")},
    flops="B * T * HV * (V + 8)",
)


def reference(x, dt, dt_bias):
    """x, v [B, T, HV, V]; dt [B, T, HV]; dt_bias [HV]."""
    return {"v": _softplus(dt + dt_bias)[..., None] * x}


def _softplus(z):
    return torch.logaddexp(z, torch.zeros_like(z))


def vjp(d_v, x, dt, dt_bias, *, needs):
    """dx = softplus(z) dv; d dt = sigmoid(z) sum over V of dv x, z = dt + dt_bias; d dt_bias = sum d dt."""
    z = dt + dt_bias
    d_dt = torch.sigmoid(z) * (d_v * x).sum(dim=-1)
    gradients = {"x": _softplus(z)[..., None] * d_v, "dt": d_dt, "dt_bias": d_dt.sum(dim=(0, 1))}
    return {name: gradients[name] for name in gradients if name in needs}


def launch(x, dt, dt_bias, v, *, seqs, config):
    from ..kernels.discretize import discretize_kernel

    return [over_rows(discretize_kernel, dict(x=x, dt=dt, dt_bias=dt_bias, v=v), x, config)]


def vjp_configs(axes, device):
    return [{**each, "P": PARTS, "BT": 32, "BH": 32} for each in row_configs(axes, device)]


def vjp_launch(d_v, x, dt, dt_bias, d_x, d_dt, d_dt_bias, terms, parts, *, seqs, config):
    from ..kernels.discretize import discretize_vjp_kernel

    if d_dt is None and d_dt_bias is not None:
        d_dt = terms
    tensors = dict(d_v=d_v, x=x, dt=dt, dt_bias=dt_bias, d_x=d_x, d_dt=d_dt)
    by_row = over_rows(discretize_vjp_kernel, tensors, x, config)
    return [by_row, *([] if d_dt_bias is None else head_sums(d_dt, parts, d_dt_bias, seqs, config))]


LAUNCHERS = [Launcher("triton", launch, row_configs)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, vjp_configs, scratch=SCRATCH)]
