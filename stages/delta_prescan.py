"""What the delta rule's scan needs of a chunk's keys and gates: sums of decay, Gram matrix, inverse in one kernel.

chunk_local_cumsum, chunk_scaled_dot_kkt and solve_tril at once:

    y[i] = sum over j <= i in the chunk of max(x[j] log2 e, -126)
    Ai   = (I + A)^-1,   A[i, j] = beta[i] <k[i], k[j]> 2^(y[i] - y[j])   for j < i in the chunk, else 0

A never goes through memory. It stands only where there is a gate.
"""

from . import chunk_local_cumsum, chunk_scaled_dot_kkt, solve_tril
from ._contract import F32, Contract, Launch, Launcher, Port
from ._tiles import by_dtype, chunk_limits, precision
from .solve_tril import inverse_precision

CONTRACT = Contract(
    inputs={
        "k": Port("B T H K"),
        "beta": Port("B T HV"),
        "x": Port("B T HV", F32, unit="log_decay/ln/token", where="<= 0"),
    },
    outputs={
        "y": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)"),
        "Ai": Port("B T HV C", unit="gram/unit_lower_inverse/gated"),
    },
    requires=("HV % H == 0",),
    flops="B * T * HV * C * (2 * K + C / 3)",
)

FUSES = """
stages:
  cumsum: {use: chunk_local_cumsum,   in: {x: x}}
  kkt:    {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: cumsum.y}}
  solve:  {use: solve_tril,           in: {A: kkt.A}}
outputs: {y: cumsum.y, Ai: solve.Ai}
"""

FASTER_ON = ("sm_90",)
PROGRAMS = 132 * 8
"""A warp each that goes from chunk to chunk: as many as there is room for."""


def reference(k, beta, x, *, C):
    """k [B, T, H, K]; beta, x, y [B, T, HV]; Ai [B, T, HV, C]."""
    y = chunk_local_cumsum.reference(x, C=C)["y"]
    A = chunk_scaled_dot_kkt.reference(k, beta, y, C=C)["A"]
    return {"y": y, **solve_tril.reference(A, C=C)}


def configs(axes, device):
    """A tile of K whole, where a chunk's Gram matrix leaves room: then one product of it is all."""
    C = axes["C"]
    tile = {"BK": 64 if C == 128 else 128, "BK_F32": 32, "num_stages": 1}
    warps = {16: 1, 32: 2, 64: 4, 128: 8}[C]
    return [tile | {"num_warps": warps}, tile | {"BK": 64, "num_warps": warps}]


def hopper_limits(axes, device):
    """None, or why the kernel that is written for Hopper refuses these sizes."""
    if device != "sm_90":
        return f"{device}: it is written for sm_90"
    if axes["C"] != 64:
        return f"C = {axes['C']}: on {device} 64"
    return None if axes["K"] in (64, 128) else f"K = {axes['K']}: on {device} 64 or 128"


def hopper_configs(axes, device):
    return [{"num_warps": 1, "num_stages": 1}]


def hopper_launch(k, beta, x, y, Ai, *, C, seqs, config):
    from ..kernels.delta_prescan_sm90 import delta_prescan_sm90_kernel

    (B, T, H, K), HV = k.shape, beta.shape[2]
    count = B * seqs.NT * HV
    return [
        Launch(
            delta_prescan_sm90_kernel,
            grid=(min(PROGRAMS, count),),
            args=dict(
                k=k, beta=beta, x=x, y=y, Ai=Ai, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
                T=T, NT=seqs.NT, H=H, HV=HV, COUNT=count,
            ),
            constexprs=dict(K=K, C=C),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


def launch(k, beta, x, y, Ai, *, C, seqs, config):
    from ..kernels.delta_prescan import delta_prescan_kernel

    B, T, H, K = k.shape
    HV = beta.shape[2]
    return [
        Launch(
            delta_prescan_kernel,
            grid=(B * seqs.NT * HV,),
            args=dict(
                k=k, beta=beta, x=x, y=y, Ai=Ai, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
                T=T, NT=seqs.NT, H=H, HV=HV,
            ),
            constexprs=dict(
                K=K, C=C, BK=by_dtype(config, "BK", k.dtype, K), PRECISION=precision(k.dtype),
                MERGE=inverse_precision(Ai.dtype),
            ),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


NOT_IN = dict.fromkeys(("fp16", "fp32"), "it multiplies by bf16 halves")
LAUNCHERS = [
    Launcher("gluon", hopper_launch, hopper_configs, hopper_limits, not_in=NOT_IN, always=("Ai",)),
    Launcher("triton", launch, configs, chunk_limits, always=("Ai",)),
]
