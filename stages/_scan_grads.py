"""Launches of the scans that are the gradients of a scan which emits its output."""

from ._contract import Launch, ceil_div
from ._tiles import by_dtype, precision, state_limits


def scan_grads_limits(axes, device):
    """None, or why these sizes are refused: on Hopper those that the kernel written for it was not run with there."""
    if device == "sm_90":
        for name, size in (("C", 64), ("K", 128), ("V", 128)):
            if axes[name] != size:
                return f"{name} = {axes[name]}: on {device} {size}"
    return state_limits(axes, device)


def scan_grads_configs(axes, device):
    """As for the scan itself. gluon: the kernel for Hopper, for 16 bits and all three gradients."""
    C = axes["C"]
    shared = {
        "gluon": int(device == "sm_90"), "gluon_F32": 0, "BK": 64, "BK_F32": 32, "BV_F32": 16, "num_stages_F32": 1,
        "num_warps_F32": 8 if C == 128 else 4,
    }  # fmt: skip
    if device == "sm_90":
        tiles = [(64, 4, 2)]
    elif axes["K"] > 128 or axes["V"] > 128 or C == 128:
        tiles = [(32, 8, 1)]
    else:
        tiles = [(32, 8, 2), (32, 4, 2)]
    return [{**shared, "BV": BV, "num_warps": warps, "num_stages": stages} for BV, warps, stages in tiles]


def scan_grads(
    q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state,
    scale, C, seqs, config,
):  # fmt: skip
    """A launch by each scan whose results are wanted; one for all three where a kernel does them."""
    scans = [
        ((d_o, v, k), initial_state, (d_q, h, None), dict(BACKWARD=False, TURNED=True)),
        ((v, d_o, q), d_final_state, (d_k, d_s, d_initial_state), dict(BACKWARD=True, TURNED=True)),
        ((k, q, d_o), d_final_state, (d_v, None, None), dict(BACKWARD=True, TURNED=False)),
    ]
    if by_dtype(config, "gluon", k.dtype) and all(out is not None for _, _, (out, *_), _ in scans):
        return [
            on_hopper(
                q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state,
                scale, C, seqs, config,
            )
        ]  # fmt: skip
    return [
        one_scan(*read, g, g_gamma, first, *made, scale, v.shape[2], C, seqs, config, **form)
        for read, first, made, form in scans
        if any(each is not None for each in made)
    ]


def one_scan(x, y, z, g, g_gamma, first, out, states, last, scale, HV, C, seqs, config, forgotten=None, **form):
    """forgotten [N, HV]: for ``last`` alone, backward, chunks that need not be scanned (_forgotten.py)."""
    from ..kernels.chunk_h_o_grads import chunk_h_o_grads_kernel

    (HK, K), (HZ, V) = x.shape[2:], z.shape[2:]
    BV = by_dtype(config, "BV", z.dtype, V)
    return Launch(
        chunk_h_o_grads_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            x=x, y=y, z=z, g=g, g_gamma=g_gamma, first=first, out=out, states=states, last=last,
            forgotten=forgotten, scale=scale,
            cu_seqlens=seqs.cu_seqlens, chunk_offsets=seqs.chunk_offsets, T=seqs.T, NT=seqs.NT, HK=HK, HZ=HZ,
            HV=HV,
        ),
        constexprs=dict(
            K=K, V=V, C=C, BK=by_dtype(config, "BK", x.dtype, K), BV=BV, PRECISION=precision(x.dtype), **form
        ),
        num_warps=by_dtype(config, "num_warps", x.dtype),
        num_stages=by_dtype(config, "num_stages", x.dtype),
    )  # fmt: skip


def on_hopper(
    q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state,
    scale, C, seqs, config,
):  # fmt: skip
    """All of them by the kernel that is written for it."""
    from ..kernels.chunk_h_o_grads_sm90 import SCANS, chunk_h_o_grads_sm90_kernel

    (_, T, H, K), (HV, V) = k.shape, v.shape[2:]
    return Launch(
        chunk_h_o_grads_sm90_kernel,
        grid=(seqs.N * HV * SCANS.value * (V // config["BV"]),),
        args=dict(
            q=q, k=k, v=v, g=g, g_gamma=g_gamma, initial_state=initial_state, d_o=d_o, d_final_state=d_final_state,
            d_q=d_q, d_k=d_k, d_v=d_v, h=h, d_s=d_s, d_initial_state=d_initial_state, scale=scale,
            cu_seqlens=seqs.cu_seqlens, chunk_offsets=seqs.chunk_offsets, T=T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BV=config["BV"], W=config["num_warps"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
