"""Launches of the scans that emit their output, with the delta rule's correction or without it."""

from dataclasses import replace

from ._contract import Launch, ceil_div
from ._tiles import by_dtype, precision


def scan_o_configs(axes, device):
    """A state tile [K, BV], the pairs of a chunk and its rows share the registers: where the products' operands go
    through them (sm_80, sm_100), and for long K or C, tiles are narrower. gluon: the kernel for Hopper, for the sizes
    that it was written for and 16 bits."""
    C = axes["C"]
    shared = {
        "gluon": 0, "BK_F32": 32, "BV_F32": 16, "num_stages_F32": 1, "num_warps_F32": 8 if C == 128 else 4,
    }  # fmt: skip
    if axes["K"] > 128 or C == 128:
        tiles = [(64, 32, 8, 1), (64, 64, 8, 1)]
    elif device == "sm_90":
        tiles = [(128, 64, 4, 2), (128, 64, 4, 1)]
    else:
        tiles = [(64, 32, 8, 2), (64, 32, 4, 2)]
    plain = [
        {**shared, "BK": BK, "BV": BV, "num_warps": warps, "num_stages": stages} for BK, BV, warps, stages in tiles
    ]
    if device == "sm_90" and C == 64 and axes["K"] in (64, 128) and axes["V"] % 64 == 0:
        return [{**plain[0], "gluon": 1, "gluon_F32": 0, "num_stages": 1}, *plain]
    return plain


def scan_o(q, k, v, beta, Ai, g, g_gamma, initial_state, o, final_state, scale, C, seqs, config):
    """The scan's one launch. Without Ai the values pass uncorrected."""
    from ..kernels.chunk_delta_o import chunk_delta_o_kernel

    (_, T, H, K), (HV, V) = k.shape, v.shape[2:]
    BV = by_dtype(config, "BV", k.dtype, V)
    launch = Launch(
        chunk_delta_o_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            q=q, k=k, v=v, beta=beta, Ai=Ai, g=g, g_gamma=g_gamma, initial_state=initial_state, o=o,
            final_state=final_state, scale=scale, cu_seqlens=seqs.cu_seqlens, T=T, H=H, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BK=by_dtype(config, "BK", k.dtype, K), BV=BV, PRECISION=precision(k.dtype)),
        num_warps=by_dtype(config, "num_warps", k.dtype),
        num_stages=by_dtype(config, "num_stages", k.dtype),
    )  # fmt: skip
    return on_hopper(launch) if by_dtype(config, "gluon", k.dtype) else launch


def on_hopper(launch):
    """The same by the kernel that is written for it."""
    from ..kernels.chunk_delta_o_sm90 import chunk_delta_o_sm90_kernel

    sizes = {name: launch.constexprs[name] for name in ("K", "V", "C", "BV")}
    return replace(launch, kernel=chunk_delta_o_sm90_kernel, constexprs={**sizes, "W": launch.num_warps})
