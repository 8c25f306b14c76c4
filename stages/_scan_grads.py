"""Launches of the scans that are the gradients of a scan which emits its output."""

from ._contract import Launch, ceil_div
from ._tiles import by_dtype, precision, state_limits


def scan_grads_limits(axes, device):
    """None, or why these sizes are refused."""
    return state_limits(axes, device)


def scan_grads_configs(axes, device):
    """As for the scan itself."""
    C = axes["C"]
    shared = {"BK": 64, "BK_F32": 32, "BV_F32": 16, "num_stages_F32": 1, "num_warps_F32": 8 if C == 128 else 4}
    if axes["K"] > 128 or axes["V"] > 128 or C == 128:
        tiles = [(32, 8, 1), (64, 8, 1)]
    else:
        tiles = [(32, 8, 2), (32, 4, 2)]
    return [{**shared, "BV": BV, "num_warps": warps, "num_stages": stages} for BV, warps, stages in tiles]


def scan_grads(
    q, k, v, g, g_gamma, initial_state, d_o, d_final_state, d_q, d_k, d_v, h, d_s, d_initial_state,
    scale, C, seqs, config,
):  # fmt: skip
    """A launch by each gradient: queries, keys and values of its scan, its first state, what it gives."""
    scans = [
        ((d_o, v, k), initial_state, (d_q, h, None), dict(BACKWARD=False, TURNED=True)),
        ((v, d_o, q), d_final_state, (d_k, d_s, d_initial_state), dict(BACKWARD=True, TURNED=True)),
        ((k, q, d_o), d_final_state, (d_v, None, None), dict(BACKWARD=True, TURNED=False)),
    ]
    return [
        one_scan(*read, g, g_gamma, first, *made, scale, v.shape[2], C, seqs, config, **form)
        for read, first, made, form in scans
        if any(each is not None for each in made)
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
