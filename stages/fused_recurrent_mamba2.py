"""Mamba-2 token by token in one kernel, from the raw time step to the output with the skip.

    d = softplus(dt + dt_bias)        S <- exp(-d exp(A_log)) S + b^T (d x)        o = c S + d_skip x

H groups share b and c. The decay is computed as decay_gate does it. arXiv:2405.21060.
"""

import torch

from ._contract import F32, Contract, Launcher, Port
from ._fused_recurrent import recurrence, recurrent_configs, recurrent_launch, recurrent_limits
from .decay_gate import reference as decay_gate
from .discretize import reference as discretize

CONTRACT = Contract(
    inputs={
        "x": Port("B T HV V"),
        "dt": Port("B T HV", doc="step before the softplus"),
        "A_log": Port("HV", F32),
        "b": Port("B T H K"),
        "c": Port("B T H K"),
        "d_skip": Port("HV", F32),
        "dt_bias": Port("HV", F32),
        "initial_state": Port("N HV K V", F32, unit="state/sequence_start", optional=True),
    },
    outputs={"o": Port("B T HV V"), "final_state": Port("N HV K V", F32, unit="state/sequence_end")},
    requires=("HV % H == 0",),
    flops="B * T * HV * V * (5 * K + 3)",
)

REPLACES = """
stages:
  gate:   {use: decay_gate,         in: {a: dt, A_log: A_log, dt_bias: dt_bias}}
  cumsum: {use: chunk_local_cumsum, in: {x: gate.g}}
  write:  {use: discretize,         in: {x: x, dt: dt, dt_bias: dt_bias}}
  scan:   {use: chunk_h,            in: {k: b, v: write.v, g: cumsum.y, initial_state: initial_state}}
  read:   {use: chunk_o,            in: {q: c, k: b, v: write.v, h: scan.h, g: cumsum.y}, with: {scale: 1}}
  skip:   {use: skip,               in: {y: read.o, x: x, weight: d_skip}}
outputs: {o: skip.o, final_state: scan.final_state}
"""


def reference(x, dt, A_log, b, c, d_skip, dt_bias, initial_state):
    """x [B, T, HV, V], dt [B, T, HV], b, c [B, T, H, K], A_log, d_skip, dt_bias [HV], initial_state [B, HV, K, V]."""
    decay = torch.exp(decay_gate(dt, A_log, dt_bias)["g"])[..., None]
    found = recurrence(c, b, discretize(x, dt, dt_bias)["v"], decay, None, initial_state, 1.0)
    return {**found, "o": found["o"] + d_skip[:, None] * x}


def mamba2_launch(x, dt, A_log, b, c, d_skip, dt_bias, state, state_indices, o, end_state, *, seqs, config):
    from ..kernels.fused_recurrent_mamba2 import fused_recurrent_mamba2_kernel

    tensors = dict(
        x=x, dt=dt, A_log=A_log, b=b, c=c, d_skip=d_skip, dt_bias=dt_bias, state=state, state_indices=state_indices,
        o=o, end_state=end_state,
    )  # fmt: skip
    states = seqs.N if state is None else state.shape[0]
    H, K = b.shape[2:]
    return recurrent_launch(fused_recurrent_mamba2_kernel, tensors, x, K, H, states, seqs, config)


def launch(x, dt, A_log, b, c, d_skip, dt_bias, initial_state, o, final_state, *, seqs, config):
    return mamba2_launch(
        x, dt, A_log, b, c, d_skip, dt_bias, initial_state, None, o, final_state, seqs=seqs, config=config
    )


LAUNCHERS = [Launcher("triton", launch, recurrent_configs, recurrent_limits)]
