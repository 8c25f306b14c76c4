"""Launches of the scans over chunk states, for the stages with the delta rule's correction and without it."""

from ._contract import Launch, ceil_div
from ._tiles import by_dtype, precision


def scan_configs(axes, device):
    """A state tile [K, BV] and the chunk's rows share the registers: narrower tiles for long K or C."""
    shared = {"BK": 64, "BK_F32": 32, "BV_F32": 16, "num_stages_F32": 1, "num_warps_F32": 8 if axes["C"] == 128 else 4}
    if axes["K"] > 128 or axes["C"] == 128:
        tiles = [(32, 4, 2), (64, 8, 1)]
    else:
        tiles = [(64, 8 if device == "sm_100" else 4, 2), (64, 4, 1), (64, 4, 3), (32, 4, 2), (32, 4, 3)]
    return [{**shared, "BV": BV, "num_warps": warps, "num_stages": stages} for BV, warps, stages in tiles]


def delta_scan_configs(axes, device):
    """The same for scans that hold a chunk's inverse and its products beside the state: where the operands go through
    registers (sm_80, sm_100), 64 columns leave no room."""
    if device == "sm_90" or axes["K"] > 128 or axes["C"] == 128:
        return scan_configs(axes, device)
    return [{**scan_configs(axes, device)[0], "BV": 32, "num_warps": warps, "num_stages": 2} for warps in (4, 8)]


def state_scan(
    k, w, v, g, g_gamma, initial_state, h, v_new, final_state, *, C, seqs, config, b_end=None, forgotten=None
):  # fmt: skip
    """The scan's one launch. Without w the values pass uncorrected; b_end [B, NT, HV, K]: a decay per channel.
    forgotten [N, HV]: for final_state alone, chunks that need not be scanned (_forgotten.py)."""
    from ..kernels.chunk_delta_h import chunk_delta_h_kernel

    (H, K), (HV, V) = k.shape[2:], v.shape[2:]
    BV = by_dtype(config, "BV", k.dtype, V)
    return Launch(
        chunk_delta_h_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            k=k, w=w, v=v, g=g, g_gamma=g_gamma, b_end=b_end, initial_state=initial_state, h=h, v_new=v_new,
            final_state=final_state, forgotten=forgotten, cu_seqlens=seqs.cu_seqlens,
            chunk_offsets=seqs.chunk_offsets, T=seqs.T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BK=by_dtype(config, "BK", k.dtype, K), BV=BV, PRECISION=precision(k.dtype)),
        num_warps=by_dtype(config, "num_warps", k.dtype),
        num_stages=by_dtype(config, "num_stages", k.dtype),
    )  # fmt: skip
