"""kda_norm_prescan on a gate that it computes itself: Kimi Delta Attention up to the inverse, in one kernel.

    g = -exp(A_log) softplus(a + dt_bias)

and of g, q, k and beta what kda_norm_prescan makes. What only the backward pass reads goes through memory only for it.
Elsewhere than on Hopper the kernels run one after the other.
"""

from . import kda_gate, kda_norm_prescan, kda_prescan
from ._channel_prescan import NOT_IN, apart_limits, delta_launch, hopper_configs, hopper_limits
from ._contract import Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "beta": Port("B T HV"),
        **kda_gate.CONTRACT.inputs,
    },
    outputs={**kda_gate.CONTRACT.outputs, **kda_norm_prescan.CONTRACT.outputs},
    params={"scale": None, "eps": 1e-6},
    requires=("HV % H == 0", "eps >= 0"),
    flops="2 * B * T * HV * (2 * C + 1) * K + 6 * B * T * H * K + 8 * B * T * HV * K",
)

FUSES = """
stages:
  qnorm:  {use: l2norm, in: {x: q}, with: {eps: eps}}
  knorm:  {use: l2norm, in: {x: k}, with: {eps: eps}}
  gate:   {use: kda_gate, in: {a: a, A_log: A_log, dt_bias: dt_bias}}
  cumsum: {use: chunk_local_cumsum_k, in: {x: gate.g}}
  intra:  {use: kda_intra, in: {q: qnorm.y, k: knorm.y, beta: beta, b: cumsum.y}, with: {scale: scale}}
outputs:
  g: gate.g
  qn: qnorm.y
  kn: knorm.y
  y: cumsum.y
  A_qk: intra.A_qk
  A_kk: intra.A_kk
  qg: intra.qg
  kb: intra.kb
  kg: intra.kg
  b_end: intra.b_end
"""

FASTER_ON = ("sm_90",)


def reference(q, k, beta, a, A_log, dt_bias, *, C, scale, eps):
    """q, k, qn, kn [B, T, H, K]; beta [B, T, HV]; a, g, y [B, T, HV, K]; A_log [HV]; dt_bias [HV, K]."""
    g = kda_gate.reference(a, A_log, dt_bias)["g"]
    return {"g": g, **kda_norm_prescan.reference(q, k, beta, g, C=C, scale=scale, eps=eps)}


def launch(
    q, k, beta, a, A_log, dt_bias, g, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end, *, C, scale, eps, seqs, config
):  # fmt: skip
    return delta_launch(
        a, q.shape[2], q=q, k=k, beta=beta, A_log=A_log, dt_bias=dt_bias, g=g, qn=qn, kn=kn, eps=eps, y=y, A_qk=A_qk,
        A_kk=A_kk, qg=qg, kb=kb, kg=kg, b_end=b_end, C=C, scale=scale, seqs=seqs, config=config,
    )  # fmt: skip


def launch_apart(
    q, k, beta, a, A_log, dt_bias, g, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end, *, C, scale, eps, seqs, config
):  # fmt: skip
    [gate] = kda_gate.LAUNCHERS
    return [
        *gate.launch(a, A_log, dt_bias, g, seqs=seqs, config=gate.configs({}, "")[0]),
        *kda_norm_prescan.launch_apart(
            q, k, beta, g, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end,
            C=C, scale=scale, eps=eps, seqs=seqs, config=config,
        ),
    ]  # fmt: skip


LAUNCHERS = [
    Launcher("triton", launch, hopper_configs, hopper_limits, not_in=NOT_IN, always=kda_prescan.WRITTEN),
    Launcher(
        "triton", launch_apart, kda_prescan.LAUNCHERS[1].configs, apart_limits, always=("g", "qn", "kn", "y")
    ),
]
