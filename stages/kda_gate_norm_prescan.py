"""kda_norm_prescan on the pre-activations of the log decays, in one kernel.

    x = -exp(A_log) softplus(a + dt_bias), as kda_gate makes it

x goes nowhere: with gradients, where it is read again, kda_norm_prescan stands. qn, kn and y go through memory only
where somebody reads them. Elsewhere than on Hopper the kernels run one after the other, on x in a buffer.
"""

from . import kda_gate, kda_norm_prescan, kda_prescan
from ._channel_prescan import NOT_IN, apart_limits, delta_launch, hopper_configs, hopper_limits
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "beta": Port("B T HV"),
        **kda_gate.CONTRACT.inputs,
    },
    outputs=kda_norm_prescan.CONTRACT.outputs,
    params={"scale": None, "eps": 1e-6},
    requires=("HV % H == 0", "eps >= 0"),
    flops="2 * B * T * HV * (2 * C + 5) * K + 6 * B * T * H * K",
)

FUSES = """
stages:
  gate:   {use: kda_gate, in: {a: a, A_log: A_log, dt_bias: dt_bias}}
  qnorm:  {use: l2norm, in: {x: q}, with: {eps: eps}}
  knorm:  {use: l2norm, in: {x: k}, with: {eps: eps}}
  cumsum: {use: chunk_local_cumsum_k, in: {x: gate.g}}
  intra:  {use: kda_intra, in: {q: qnorm.y, k: knorm.y, beta: beta, b: cumsum.y}, with: {scale: scale}}
outputs:
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
    """q, k, qn, kn [B, T, H, K]; beta [B, T, HV]; a, y [B, T, HV, K]; A_log [HV]; dt_bias [HV, K]."""
    x = kda_gate.reference(a, A_log, dt_bias)["g"]
    return kda_norm_prescan.reference(q, k, beta, x, C=C, scale=scale, eps=eps)


def launch(
    q, k, beta, a, A_log, dt_bias, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end, *, C, scale, eps, seqs, config
):  # fmt: skip
    return delta_launch(
        a, q.shape[2], q=q, k=k, beta=beta, A_log=A_log, dt_bias=dt_bias, qn=qn, kn=kn, eps=eps, y=y, A_qk=A_qk,
        A_kk=A_kk, qg=qg, kb=kb, kg=kg, b_end=b_end, C=C, scale=scale, seqs=seqs, config=config,
    )  # fmt: skip


def launch_apart(
    q, k, beta, a, A_log, dt_bias, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end, x, *, C, scale, eps, seqs, config
):  # fmt: skip
    [tile] = kda_gate.LAUNCHERS[0].configs({}, "")
    return [
        *kda_gate.launch(a, A_log, dt_bias, x, seqs=seqs, config=tile),
        *kda_norm_prescan.launch_apart(
            q, k, beta, x, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end, C=C, scale=scale, eps=eps, seqs=seqs, config=config
        ),
    ]  # fmt: skip


LAUNCHERS = [
    Launcher("gluon", launch, hopper_configs, hopper_limits, not_in=NOT_IN, always=kda_prescan.WRITTEN),
    Launcher(
        "triton",
        launch_apart,
        kda_prescan.LAUNCHERS[1].configs,
        apart_limits,
        scratch={"x": Port("B T HV K", F32)},
        always=("qn", "kn", "y"),
    ),
]
