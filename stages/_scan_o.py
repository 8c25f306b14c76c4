"""Launches of the scans that emit their output, with the delta rule's correction or without it."""

from dataclasses import replace

from ._contract import Launch, ceil_div
from ._handover import NO_PARTS
from ._pieces import piece_limits, pieces
from ._tiles import by_dtype, precision, state_limits


def scan_o_limits(axes, device):
    """None, or why these sizes are refused. On Hopper in 16 bits the parts are faster than any kernel but the one that
    is written for it, which takes some sizes only."""
    if device == "sm_90":
        if axes["C"] != 64:
            return f"C = {axes['C']}: on {device} 64"
        if axes["K"] not in (64, 128):
            return f"K = {axes['K']}: on {device} 64 or 128"
        if axes["V"] % 64:
            return f"V = {axes['V']}: on {device} a multiple of 64"
    return state_limits(axes, device)


def delta_o_limits(axes, device):
    """The same for the delta rule, whose scan alone is cut where heads are few and sequences long."""
    if piece_limits(axes, device) is None:
        return f"T = {axes['T']} and HV = {axes['HV']}: chunk_delta_h alone is faster, in {pieces(axes)} pieces"
    return scan_o_limits(axes, device)


def scan_o_configs(axes, device):
    """A state tile [K, BV], the pairs of a chunk and its rows share the registers: for long K or C, tiles are narrower.
    groups: of four warps in the kernels for Hopper, for 16 bits; 0 is the one for all. What is taken may not follow
    from the batch, as the bits would."""
    C = axes["C"]
    shared = {
        "groups": 0, "groups_F32": 0, "BK": 64, "BK_F32": 32, "BV_F32": 16, "num_stages_F32": 1,
        "num_warps_F32": 8 if C == 128 else 4,
    }  # fmt: skip
    if device == "sm_90":
        hopper = {**shared, "BV": 64, "num_warps": 4, "num_stages": 1}
        return [{**hopper, "groups": groups} for groups in (3, 1)]
    if axes["K"] > 128 or C == 128:
        tiles = [(32, 8, 1), (64, 8, 1)]
    else:
        tiles = [(32, 8, 2), (32, 4, 2)]
    return [{**shared, "BV": BV, "num_warps": warps, "num_stages": stages} for BV, warps, stages in tiles]


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
    groups = by_dtype(config, "groups", k.dtype)
    return on_hopper(launch, groups) if groups else launch


def on_hopper(launch, groups):
    """The same by a kernel that is written for it."""
    from ..kernels.chunk_delta_o_groups_sm90 import chunk_delta_o_groups_sm90_kernel
    from ..kernels.chunk_delta_o_sm90 import chunk_delta_o_sm90_kernel

    sizes = {name: launch.constexprs[name] for name in ("K", "V", "C", "BV")}
    if groups == 1:
        return replace(launch, kernel=chunk_delta_o_sm90_kernel, constexprs={**sizes, "W": launch.num_warps})
    args = {**launch.args, "starts": None, "entered": None, "pieces": 1, **NO_PARTS}
    return replace(launch, kernel=chunk_delta_o_groups_sm90_kernel, args=args, constexprs=sizes)
