"""kda_prescan on queries and keys that it normalises itself, in one kernel.

    qn = q / sqrt(sum over K of q^2 + eps)    kn = k / sqrt(sum over K of k^2 + eps)

and of these, x and beta what kda_prescan makes. qn, kn and y go through memory only where somebody reads them, as the
backward pass does. Elsewhere than on Hopper the kernels run one after the other.
"""

from . import kda_prescan, l2norm
from ._channel_prescan import NOT_IN, apart_limits, delta_launch, hopper_configs, hopper_limits
from ._contract import F32, Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "beta": Port("B T HV"),
        "x": Port("B T HV K", F32, unit="log_decay/ln/token", where="<= 0"),
    },
    outputs={
        "qn": Port("B T H K", where="unit_norm(K)"),
        "kn": Port("B T H K", where="unit_norm(K)"),
        **kda_prescan.CONTRACT.outputs,
    },
    params={"scale": None, "eps": 1e-6},
    requires=("HV % H == 0", "eps >= 0"),
    flops="2 * B * T * HV * (2 * C + 1) * K + 6 * B * T * H * K",
)

FUSES = """
stages:
  qnorm:  {use: l2norm, in: {x: q}, with: {eps: eps}}
  knorm:  {use: l2norm, in: {x: k}, with: {eps: eps}}
  cumsum: {use: chunk_local_cumsum_k, in: {x: x}}
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


def reference(q, k, beta, x, *, C, scale, eps):
    """q, k, qn, kn [B, T, H, K]; beta [B, T, HV]; x, y [B, T, HV, K]."""
    qn, kn = (l2norm.reference(rows, eps=eps)["y"] for rows in (q, k))
    return {"qn": qn, "kn": kn, **kda_prescan.reference(qn, kn, beta, x, C=C, scale=scale)}


def launch(q, k, beta, x, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end, *, C, scale, eps, seqs, config):
    return delta_launch(
        x, q.shape[2], q=q, k=k, beta=beta, qn=qn, kn=kn, eps=eps, y=y, A_qk=A_qk, A_kk=A_kk, qg=qg, kb=kb, kg=kg,
        b_end=b_end, C=C, scale=scale, seqs=seqs, config=config,
    )  # fmt: skip


def launch_apart(q, k, beta, x, qn, kn, y, A_qk, A_kk, qg, kb, kg, b_end, *, C, scale, eps, seqs, config):
    rows = l2norm.configs({"K": q.shape[-1]}, "")[0]
    return [
        *l2norm.launch(q, qn, eps=eps, seqs=seqs, config=rows),
        *l2norm.launch(k, kn, eps=eps, seqs=seqs, config=rows),
        *kda_prescan.launch_apart(
            qn, kn, beta, x, y, A_qk, A_kk, qg, kb, kg, b_end, C=C, scale=scale, seqs=seqs, config=config
        ),
    ]  # fmt: skip


LAUNCHERS = [
    Launcher("gluon", launch, hopper_configs, hopper_limits, not_in=NOT_IN, always=kda_prescan.WRITTEN),
    Launcher("triton", launch_apart, kda_prescan.LAUNCHERS[1].configs, apart_limits, always=("qn", "kn", "y")),
]
