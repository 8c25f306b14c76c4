"""Launches of the gates per channel: elementwise, and gradients with sums over tokens and channels."""

from ._contract import F32, Launch, Port, ceil_div


def gate_configs(axes, device):
    return [{"BT": 64, "BN": 64, "num_warps": 4, "num_stages": 1}]


def gate_launch(a, A_log, dt_bias, g, bound, *, config):
    """bound None: -exp(A_log) softplus(a + dt_bias); else bound sigmoid(exp(A_log) (a + dt_bias))."""
    from ..kernels.kda_gate import kda_gate_kernel

    B, T, HV, K = a.shape
    return [
        Launch(
            kda_gate_kernel,
            grid=(ceil_div(B * T, config["BT"]) * ceil_div(HV * K, config["BN"]),),
            args=dict(a=a, A_log=A_log, dt_bias=dt_bias, g=g, bound=bound, rows=B * T, HV=HV),
            constexprs=dict(K=K, BT=config["BT"], BN=config["BN"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


SCRATCH = {"sum_A_log": Port("P HV K", F32), "sum_dt_bias": Port("P HV K", F32)}


def gate_vjp_configs(axes, device):
    return [{"P": 64, "BT": 32, "BN": 64, "num_warps": 4, "num_stages": 1}]


def gate_vjp_launches(
    d_g, a, A_log, dt_bias, d_a, d_A_log, d_dt_bias, sum_A_log, sum_dt_bias, bound, *, seqs, config
):  # fmt: skip
    """P programs a block of channels each sum every P-th block of rows; a second kernel adds the sums in order."""
    from ..kernels.kda_gate import add_channel_sums_kernel, kda_gate_vjp_kernel

    B, T, HV, K = a.shape
    P, BN = config["P"], config["BN"]
    sum_A_log = None if d_A_log is None else sum_A_log
    sum_dt_bias = None if d_dt_bias is None else sum_dt_bias
    shape = dict(num_warps=config["num_warps"], num_stages=config["num_stages"])
    launches = [
        Launch(
            kda_gate_vjp_kernel,
            grid=(P * ceil_div(HV * K, BN),),
            args=dict(
                d_g=d_g, a=a, A_log=A_log, dt_bias=dt_bias, d_a=d_a, sum_A_log=sum_A_log, sum_dt_bias=sum_dt_bias,
                bound=bound, cu_seqlens=seqs.cu_seqlens, N=seqs.N, rows=B * T, HV=HV,
            ),
            constexprs=dict(P=P, K=K, BT=config["BT"], BN=BN),
            **shape,
        )
    ]  # fmt: skip
    if d_A_log is not None or d_dt_bias is not None:
        args = dict(sum_A_log=sum_A_log, sum_dt_bias=sum_dt_bias, d_A_log=d_A_log, d_dt_bias=d_dt_bias, HV=HV)
        launches.append(Launch(add_channel_sums_kernel, (HV,), args, dict(P=P, K=K, BN=BN), **shape))
    return launches
