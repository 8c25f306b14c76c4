"""Launches of the scans that are the gradients of a scan which emits its output."""

from ._contract import Launch, ceil_div
from ._tiles import by_dtype, precision, state_limits


def scan_grads_limits(axes, device):
    """None, or why these sizes are refused: on Hopper those that the kernel written for it does not take."""
    if device == "sm_90":
        if axes["C"] != 64:
            return f"C = {axes['C']}: on {device} 64"
        for name in ("K", "V"):
            if axes[name] not in (64, 128):
                return f"{name} = {axes[name]}: on {device} 64 or 128"
    return state_limits(axes, device)


def scan_grads_configs(axes, device):
    """As for the scan itself. gluon: the kernel for Hopper, for 16 bits."""
    C = axes["C"]
    shared = {
        "gluon": int(device == "sm_90"), "gluon_F32": 0, "BK": 64, "BK_F32": 32, "BV_F32": 16, "num_stages_F32": 1,
        "num_warps_F32": 8 if C == 128 else 4,
    }  # fmt: skip
    if device == "sm_90":
        tiles = [(64, 4, 1)]
    elif axes["K"] > 128 or axes["V"] > 128 or C == 128:
        tiles = [(32, 8, 1)]
    else:
        tiles = [(32, 8, 2), (32, 4, 2)]
    return [{**shared, "BV": BV, "num_warps": warps, "num_stages": stages} for BV, warps, stages in tiles]


def scan_grads(
    q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state,
    scale, C, seqs, config,
):  # fmt: skip
    """The scans whose results are wanted; several in one launch where one kernel does them."""
    made = [(d_q, h, None), (d_k, d_s, d_initial_state), (d_v, None, None)]
    wanted = [i for i, results in enumerate(made) if any(each is not None for each in results)]
    if by_dtype(config, "gluon", k.dtype) and all(made[i][0] is not None for i in wanted):
        given = dict(
            q=q, k=k, v=v, g=g, g_gamma=g_gamma, initial_state=initial_state, d_o=d_o, d_final_state=d_final_state,
            h=h, d_s=d_s, d_initial_state=d_initial_state,
        )  # fmt: skip
        runs = in_one_grid(wanted, k.shape[-1] == v.shape[-1])
        return [on_hopper(given, (d_q, d_k, d_v), run, scale, C, seqs, config) for run in runs]
    scans = [
        ((d_o, v, k), initial_state, dict(BACKWARD=False, TURNED=True)),
        ((v, d_o, q), d_final_state, dict(BACKWARD=True, TURNED=True)),
        ((k, q, d_o), d_final_state, dict(BACKWARD=True, TURNED=False)),
    ]
    return [
        one_scan(*read, g, g_gamma, first, *made[i], scale, v.shape[2], C, seqs, config, **form)
        for i, (read, first, form) in enumerate(scans)
        if i in wanted
    ]


def one_scan(x, y, z, g, g_gamma, first, out, states, last, scale, HV, C, seqs, config, **form):
    from ..kernels.chunk_h_o_grads import chunk_h_o_grads_kernel

    (_, T, HK, K), (HZ, V) = x.shape, z.shape[2:]
    BV = by_dtype(config, "BV", z.dtype, V)
    return Launch(
        chunk_h_o_grads_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            x=x, y=y, z=z, g=g, g_gamma=g_gamma, first=first, out=out, states=states, last=last, scale=scale,
            cu_seqlens=seqs.cu_seqlens, chunk_offsets=seqs.chunk_offsets, T=T, NT=seqs.NT, HK=HK, HZ=HZ, HV=HV,
        ),
        constexprs=dict(
            K=K, V=V, C=C, BK=by_dtype(config, "BK", x.dtype, K), BV=BV, PRECISION=precision(x.dtype), **form
        ),
        num_warps=by_dtype(config, "num_warps", x.dtype),
        num_stages=by_dtype(config, "num_stages", x.dtype),
    )  # fmt: skip


def in_one_grid(wanted, same_widths):
    """The wanted scans in runs of neighbours; the last one's keys are as wide as the others' values."""
    runs = []
    for i in wanted:
        if runs and runs[-1][-1] == i - 1 and (same_widths or i < 2):
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def on_hopper(given, made, run, scale, C, seqs, config):
    """Some of the scans by the kernel that is written for them."""
    from ..kernels.chunk_h_o_grads_sm90 import chunk_h_o_grads_sm90_kernel

    (_, T, H, K), (HV, V) = given["k"].shape, given["v"].shape[2:]
    keys, values = (K, V) if run == [2] else (V, K)
    d_q, d_k, d_v = (each if i in run else made[run[0]] for i, each in enumerate(made))  # one not in the run is unused
    return Launch(
        chunk_h_o_grads_sm90_kernel,
        grid=(seqs.N * HV * len(run) * (values // config["BV"]),),
        args=dict(
            **given, d_q=d_q, d_k=d_k, d_v=d_v, scale=scale, first=run[0], cu_seqlens=seqs.cu_seqlens,
            chunk_offsets=seqs.chunk_offsets, T=T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(K=keys, V=values, C=C, BV=config["BV"], W=config["num_warps"], SCANS=len(run)),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
