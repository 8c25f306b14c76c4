"""The scan under a decay per channel that emits its output, with or without the delta correction."""

from . import chunk_o_k
from ._channel_scan import channel_scan
from ._contract import Launch, ceil_div
from ._pieces import PROGRAMS, SLICE
from ._tiles import by_dtype, precision, state_limits

LONG, FEWEST = 8192, 64
"""Over sequences of more tokens than that so many programs a sequence are wanted: with fewer, each at its own chunks
one after the other, it counts that a step takes longer when it makes the output too."""


def channel_scan_o(qg, A, kg, w, u, b_end, initial_state, *, C):
    """qg, kg, w [B, T, HV, K], A [B, T, HV, C], u [B, T, HV, V], b_end [B, NT, HV, K], initial_state [B, HV, K, V]."""
    found = channel_scan(kg, w, u, b_end, initial_state, C=C)
    return {
        "o": chunk_o_k.reference(qg, A, found["v_new"], found["h"], C=C)["o"],
        "final_state": found["final_state"],
    }


def channel_scan_o_limits(axes, device):
    """None, or why these sizes are refused: by one sequence's alone, so that its bits do not depend on the batch."""
    T, HV, V = axes["T"], axes["HV"], axes["V"]
    few = T > LONG and HV * ceil_div(V, SLICE) < FEWEST
    parts = f"T = {T}, HV = {HV} and V = {V}: with so few heads scan and output are faster apart"
    return state_limits(axes, device) or (parts if few else None)


def channel_scan_o_configs(axes, device):
    """A state tile [K, BV], the output and a chunk's rows share the registers: for long K or C, tiles are narrower."""
    wide = 8 if axes["C"] == 128 else 4
    shared = {"BK": 64, "BK_F32": 32, "BV_F32": 16, "num_stages_F32": 1, "num_warps_F32": wide}
    BV, warps, stages = (32, 8, 1) if axes["K"] > 128 or axes["C"] == 128 else (64, 4, 2)
    return [{**shared, "BV": BV, "num_warps": warps, "num_stages": stages}]


def channel_scan_o_launch(qg, A, kg, w, u, b_end, initial_state, o, final_state, *, C, seqs, config):
    """The scan's one launch. Without w the values pass uncorrected."""
    from ..kernels.chunk_delta_o_k import chunk_delta_o_k_kernel

    (_, T, HV, K), V = kg.shape, u.shape[-1]
    BV = by_dtype(config, "BV", kg.dtype, V)
    return Launch(
        chunk_delta_o_k_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            qg=qg, A=A, kg=kg, w=w, u=u, b_end=b_end, initial_state=initial_state, o=o, final_state=final_state,
            cu_seqlens=seqs.cu_seqlens, chunk_offsets=seqs.chunk_offsets, T=T, NT=seqs.NT, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BK=by_dtype(config, "BK", kg.dtype, K), BV=BV, PRECISION=precision(kg.dtype)),
        num_warps=by_dtype(config, "num_warps", kg.dtype),
        num_stages=by_dtype(config, "num_stages", kg.dtype),
    )  # fmt: skip


NOT_IN = {"fp32": "the kernel's products are of 16 bits"}


def hopper_scan_limits(axes, device):
    """None, or why the kernel that is written for Hopper refuses these sizes."""
    if device != "sm_90":
        return f"{device}: it is written for sm_90"
    if axes["C"] != 64:
        return f"C = {axes['C']}: on {device} 64"
    if axes["K"] not in (64, 128):
        return f"K = {axes['K']}: on {device} 64 or 128"
    if axes["V"] % 64:
        return f"V = {axes['V']}: on {device} a multiple of 64"
    return state_limits(axes, device)


def hopper_delta_scan_limits(axes, device):
    """The same under the delta rule, which makes a step longer than few programs make up for."""
    return hopper_scan_limits(axes, device) or channel_scan_o_limits(axes, device)


def hopper_scan_configs(axes, device):
    return [{"BV": 64, "num_warps": 4, "num_stages": 1}]


def hopper_delta_scan_configs(axes, device):
    """128 columns at once where 64 would be more programs than there are multiprocessors, by one sequence's alone, so
    that its bits do not depend on the batch."""
    narrow = hopper_scan_configs(axes, device)
    wide = [{"BV": 128, "num_warps": 8, "num_stages": 1}] if axes["V"] % 128 == 0 else []
    return wide + narrow if axes["HV"] * ceil_div(axes["V"], 64) > PROGRAMS else narrow + wide


def hopper_scan_launch(qg, A, kg, kb, v, beta, Ai, b_end, initial_state, o, final_state, *, C, seqs, config):
    """Under the delta rule with kb, beta and Ai, which correct the values; without them they pass as they are."""
    from ..kernels.chunk_delta_o_k_sm90 import chunk_delta_o_k_sm90_kernel

    (_, T, HV, K), V = kg.shape, v.shape[-1]
    BV = config["BV"]
    return Launch(
        chunk_delta_o_k_sm90_kernel,
        grid=(seqs.N * HV * ceil_div(V, BV),),
        args=dict(
            qg=qg, A=A, kg=kg, kb=kb, v=v, beta=beta, Ai=Ai, b_end=b_end, initial_state=initial_state, o=o,
            final_state=final_state, cu_seqlens=seqs.cu_seqlens, chunk_offsets=seqs.chunk_offsets,
            T=T, NT=seqs.NT, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BV=BV, W=config["num_warps"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )  # fmt: skip
