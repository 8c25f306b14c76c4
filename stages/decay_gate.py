"""Log decay per token from a pre-activation, as Mamba-2 and Gated DeltaNet compute it.

    g = -exp(A_log) softplus(a + dt_bias) = -exp(A_log + log softplus(a + dt_bias))

computed in the second form, with log softplus(x) = x below -15, so that no exp(A_log) = inf meets a
softplus(x) = 0: A_log = 100, x = -200 gives g = -exp(-100). The exponent stops at 88, the last whole number
whose exp is finite in float32: g stays finite, and where it stops the gradient is 0.
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div

LINEAR_BELOW = -15.0
LARGEST_EXPONENT = 88.0

CONTRACT = Contract(
    inputs={"a": Port("B T HV"), "A_log": Port("HV", F32), "dt_bias": Port("HV", F32)},
    outputs={"g": Port("B T HV", F32, unit="log_decay/ln/token", where="<= 0")},
    flops="8 * B * T * HV",
)


def reference(a, A_log, dt_bias):
    """a, g [B, T, HV]; A_log, dt_bias [HV]."""
    exponent = A_log + _log_softplus(a + dt_bias)
    return {"g": -torch.exp(exponent.clamp(max=LARGEST_EXPONENT))}


def _log_softplus(x):
    # the inner where keeps log(0) out of the branch that is not taken: its gradient would be nan
    linear = x < LINEAR_BELOW
    usual = torch.where(linear, torch.zeros_like(x), x)
    return torch.where(linear, x, torch.log(_softplus(usual)))


def _softplus(x):
    return torch.logaddexp(x, torch.zeros_like(x))


def vjp(d_g, a, A_log, dt_bias, *, needs):
    """d A_log = sum g dg; d a = g dg sigmoid(x) / softplus(x), the ratio 1 below -15; d dt_bias = sum d a."""
    x = a + dt_bias
    exponent = A_log + _log_softplus(x)
    d_exponent = torch.where(exponent > LARGEST_EXPONENT, 0.0, -torch.exp(exponent) * d_g)
    usual = torch.clamp(x, min=LINEAR_BELOW)
    ratio = torch.where(x < LINEAR_BELOW, 1.0, torch.sigmoid(usual) / _softplus(usual))
    d_x = d_exponent * ratio
    gradients = {"a": d_x, "A_log": d_exponent.sum(dim=(0, 1)), "dt_bias": d_x.sum(dim=(0, 1))}
    return {name: gradients[name] for name in gradients if name in needs}


def configs(axes, device):
    return [{"BT": 32, "BH": 32, "num_warps": 4, "num_stages": 1}]


def launch(a, A_log, dt_bias, g, *, seqs, config):
    from ..kernels.decay_gate import decay_gate_kernel

    B, T, HV = a.shape
    return [
        Launch(
            decay_gate_kernel,
            grid=(ceil_div(B * T, config["BT"]) * ceil_div(HV, config["BH"]),),
            args=dict(a=a, A_log=A_log, dt_bias=dt_bias, g=g, rows=B * T, HV=HV),
            constexprs=dict(BT=config["BT"], BH=config["BH"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


def vjp_configs(axes, device):
    return [{"P": 128, "BT": 32, "BH": 32, "num_warps": 4, "num_stages": 1}]


def vjp_launch(d_g, a, A_log, dt_bias, d_a, d_A_log, d_dt_bias, sum_A_log, sum_dt_bias, *, seqs, config):
    """P programs a head block each sum every P-th block of rows; a second kernel adds the P sums, always in order."""
    from ..kernels.decay_gate import add_partial_sums_kernel, decay_gate_vjp_kernel

    B, T, HV = a.shape
    P, BH = config["P"], config["BH"]
    sum_A_log = None if d_A_log is None else sum_A_log
    sum_dt_bias = None if d_dt_bias is None else sum_dt_bias
    shape = dict(num_warps=config["num_warps"], num_stages=config["num_stages"])
    launches = [
        Launch(
            decay_gate_vjp_kernel,
            grid=(P * ceil_div(HV, BH),),
            args=dict(
                d_g=d_g, a=a, A_log=A_log, dt_bias=dt_bias, d_a=d_a, sum_A_log=sum_A_log, sum_dt_bias=sum_dt_bias,
                cu_seqlens=seqs.cu_seqlens, N=seqs.N, rows=B * T, HV=HV,
            ),  # fmt: skip
            constexprs=dict(P=P, BT=config["BT"], BH=BH),
            **shape,
        )
    ]
    if d_A_log is not None or d_dt_bias is not None:
        launches.append(
            Launch(
                add_partial_sums_kernel,
                grid=(ceil_div(HV, BH),),
                args=dict(sum_A_log=sum_A_log, sum_dt_bias=sum_dt_bias, d_A_log=d_A_log, d_dt_bias=d_dt_bias, HV=HV),
                constexprs=dict(P=P, BH=BH),
                **shape,
            )
        )
    return launches


LAUNCHERS = [Launcher("triton", launch, configs)]
VJP_LAUNCHERS = [
    Launcher(
        "triton",
        vjp_launch,
        vjp_configs,
        scratch={"sum_A_log": Port("P HV", F32), "sum_dt_bias": Port("P HV", F32)},
    )
]
