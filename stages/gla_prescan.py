"""What the scan under a decay per channel needs of a chunk, from its log decays, in one kernel.

chunk_local_cumsum_k and gla_intra at once:

    y[i]    = sum over j <= i in the chunk of max(x[j] log2 e, -126)
    A[i, j] = scale sum over K of q_i k_j 2^(y_i - y_j)   for j <= i in the chunk, else 0
    qg = scale 2^y q    kg = 2^(y_C - y) k    b_end = y_C

y goes through memory only where somebody reads it, as the backward pass does. Elsewhere than on Hopper the two kernels
run one after the other.
"""

from . import chunk_local_cumsum_k, gla_intra
from ._channel_prescan import NOT_IN, apart_limits, hopper_configs, hopper_launch, hopper_limits, sums_launch
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "x": Port("B T HV K", F32, unit="log_decay/ln/token", where="<= 0"),
    },
    outputs={
        "y": Port("B T HV K", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)"),
        "A": Port("B T HV C", unit="attention/lower/gated"),
        "qg": Port("B T HV K", unit="query/decayed"),
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
    },
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * (C + 1) * K",
)

FUSES = """
stages:
  cumsum: {use: chunk_local_cumsum_k, in: {x: x}}
  intra:  {use: gla_intra, in: {q: q, k: k, b: cumsum.y}, with: {scale: scale}}
outputs: {y: cumsum.y, A: intra.A, qg: intra.qg, kg: intra.kg, b_end: intra.b_end}
"""

FASTER_ON = ("sm_90",)


def reference(q, k, x, *, C, scale):
    """q, k [B, T, H, K]; x, y [B, T, HV, K]."""
    y = chunk_local_cumsum_k.reference(x, C=C)["y"]
    return {"y": y, **gla_intra.reference(q, k, y, C=C, scale=scale)}


def launch(q, k, x, y, A, qg, kg, b_end, *, C, scale, seqs, config):
    from ..kernels.gla_prescan_sm90 import gla_prescan_sm90_kernel

    tensors = dict(q=q, k=k, y=y, A=A, qg=qg, kg=kg, b_end=b_end)
    return [
        hopper_launch(
            gla_prescan_sm90_kernel, tensors, x, q.shape[2], C=C, scale=scale, seqs=seqs, config=config
        )
    ]  # fmt: skip


def launch_apart(q, k, x, y, A, qg, kg, b_end, *, C, scale, seqs, config):
    scores = gla_intra.launch(q, k, y, A, qg, kg, b_end, C=C, scale=scale, seqs=seqs, config=config)
    return sums_launch(x, y, C=C, seqs=seqs) + scores


LAUNCHERS = [
    Launcher("gluon", launch, hopper_configs, hopper_limits, not_in=NOT_IN, always=("A", "qg", "kg", "b_end")),
    Launcher("triton", launch_apart, gla_intra.configs, apart_limits, always=("y",)),
]
