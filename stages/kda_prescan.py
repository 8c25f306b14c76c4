"""What the delta rule under a decay per channel needs of a chunk, from its log decays, in one kernel.

chunk_local_cumsum_k and kda_intra at once:

    y[i]       = sum over j <= i in the chunk of max(x[j] log2 e, -126)
    A_qk[i, j] = scale  sum over K of q_i k_j 2^(y_i - y_j)   for j <= i in the chunk, else 0
    A_kk[i, j] = beta_i sum over K of k_i k_j 2^(y_i - y_j)   for j < i in the chunk, else 0
    qg = scale 2^y q    kb = 2^y k    kg = 2^(y_C - y) k    b_end = y_C

y goes through memory only where somebody reads it, as the backward pass does. Elsewhere than on Hopper the two kernels
run one after the other.
"""

from . import chunk_local_cumsum_k, kda_intra
from ._channel_prescan import NOT_IN, apart_limits, delta_launch, hopper_configs, hopper_limits, sums_launch
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "beta": Port("B T HV"),
        "x": Port("B T HV K", F32, unit="log_decay/ln/token", where="<= 0"),
    },
    outputs={
        "y": Port("B T HV K", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)"),
        "A_qk": Port("B T HV C", unit="attention/lower/gated"),
        "A_kk": Port("B T HV C", F32, unit="gram/strict_lower/gated"),
        "qg": Port("B T HV K", unit="query/decayed"),
        "kb": Port("B T HV K", unit="key/decayed"),
        "kg": Port("B T HV K", unit="key/to_chunk_end"),
        "b_end": Port("B NT HV K", F32, unit="log_decay/log2/chunk_total", where="<= 0"),
    },
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * (2 * C + 1) * K",
)

FUSES = """
stages:
  cumsum: {use: chunk_local_cumsum_k, in: {x: x}}
  intra:  {use: kda_intra, in: {q: q, k: k, beta: beta, b: cumsum.y}, with: {scale: scale}}
outputs:
  {y: cumsum.y, A_qk: intra.A_qk, A_kk: intra.A_kk, qg: intra.qg, kb: intra.kb, kg: intra.kg, b_end: intra.b_end}
"""

FASTER_ON = ("sm_90",)


def reference(q, k, beta, x, *, C, scale):
    """q, k [B, T, H, K]; beta [B, T, HV]; x, y [B, T, HV, K]."""
    y = chunk_local_cumsum_k.reference(x, C=C)["y"]
    return {"y": y, **kda_intra.reference(q, k, beta, y, C=C, scale=scale)}


def launch(q, k, beta, x, y, A_qk, A_kk, qg, kb, kg, b_end, *, C, scale, seqs, config):
    return delta_launch(
        x, q.shape[2], q=q, k=k, beta=beta, y=y, A_qk=A_qk, A_kk=A_kk, qg=qg, kb=kb, kg=kg, b_end=b_end,
        C=C, scale=scale, seqs=seqs, config=config,
    )  # fmt: skip


def launch_apart(q, k, beta, x, y, A_qk, A_kk, qg, kb, kg, b_end, *, C, scale, seqs, config):
    scores = kda_intra.launch(
        q, k, beta, y, A_qk, A_kk, qg, kb, kg, b_end, C=C, scale=scale, seqs=seqs, config=config
    )  # fmt: skip
    return sums_launch(x, y, C=C, seqs=seqs) + scores


WRITTEN = ("A_qk", "A_kk", "qg", "kb", "kg", "b_end")
LAUNCHERS = [
    Launcher("gluon", launch, hopper_configs, hopper_limits, not_in=NOT_IN, always=WRITTEN),
    Launcher("triton", launch_apart, kda_intra.configs, apart_limits, always=("y",)),
]
