"""Inverse of the unit lower triangular matrix of each chunk.

    Ai = (I + A)^-1

A is strictly lower triangular; what lies on and above its diagonal is not read. In a last chunk of fewer than C
rows the columns past the valid rows are 0. Solved by substitution in float32, so that equal keys with beta near 1,
whose powers A^n grow like binomials, stay exact.
"""

import torch

from ._contract import F32, Contract, Launch, Launcher, Port
from ._decay import chunked, unchunked, zero_chunked
from ._tiles import by_dtype, chunk_limits, precision

CONTRACT = Contract(
    inputs={"A": Port("B T HV C", F32, unit="gram/strict_lower/{gating}")},
    outputs={"Ai": Port("B T HV C", unit="gram/unit_lower_inverse/{gating}")},
    flops="B * T * HV * C * C / 3",
)


def reference(A, *, C):
    """A, Ai [B, T, HV, C]."""
    b_A = chunked(A, C).transpose(2, 3)
    eye = torch.eye(C, dtype=A.dtype, device=A.device).expand_as(b_A)
    Ai = torch.linalg.solve_triangular(b_A.tril(-1) + eye, eye, upper=False, unitriangular=True)
    return {"Ai": unchunked(Ai.transpose(2, 3), A.shape[1])}


def vjp(d_Ai, Ai, *, needs, C):
    """dA = -tril(Ai^T dAi Ai^T, -1). It depends on dAi below the diagonal only."""
    b_Ai = zero_chunked(Ai, C).transpose(2, 3).tril()
    d = zero_chunked(d_Ai, C).transpose(2, 3).tril(-1)
    d_A = -(b_Ai.mT @ d @ b_Ai.mT).tril(-1)
    return {"A": unchunked(d_A.transpose(2, 3), Ai.shape[1])}


def configs(axes, device):
    """A thread for each column of a chunk."""
    return [{"num_warps": max(axes["C"] // 32, 1), "num_stages": 1}]


def inverse_precision(dtype):
    """Of the products that merge blocks. float32: its own; fp16: three of tf32, which are close to it. bf16: three of
    bf16 halves, 2^-17, far below what the inverse then loses; one of tf32, 2^-11, is not where keys repeat and beta is
    near 2."""
    if dtype == torch.bfloat16:
        return "bf16x3"
    return "ieee" if dtype == torch.float32 else "tf32x3"


def launch(A, Ai, *, C, seqs, config):
    from ..kernels.solve_tril import solve_tril_kernel

    B, T, HV, _ = A.shape
    return [
        Launch(
            solve_tril_kernel,
            grid=(B * seqs.NT * HV,),
            args=dict(A=A, Ai=Ai, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, HV=HV),
            constexprs=dict(C=C, PRECISION=inverse_precision(Ai.dtype)),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


def vjp_configs(axes, device):
    C = axes["C"]
    return [{"BC": C, "BC_F32": min(C, 32), "num_warps": 8 if C == 128 else 4, "num_stages": 1}]


def vjp_launch(d_Ai, Ai, d_A, *, C, seqs, config):
    from ..kernels.solve_tril_vjp import solve_tril_vjp_kernel

    B, T, HV, _ = Ai.shape
    return [
        Launch(
            solve_tril_vjp_kernel,
            grid=(B * seqs.NT * HV,),
            args=dict(
                d_Ai=d_Ai, Ai=Ai, d_A=d_A, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
                T=T, NT=seqs.NT, HV=HV,
            ),
            constexprs=dict(C=C, BC=by_dtype(config, "BC", Ai.dtype), PRECISION=precision(Ai.dtype)),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, chunk_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, vjp_configs, chunk_limits)]
