"""Scaled Gram matrix of the keys of each chunk, strictly lower triangular.

    A[i, j] = beta[i] <k[i], k[j]> 2^(g[i] - g[j])   for j < i in the chunk, else 0

Every exponent used is <= 0, so it may underflow to 0 and never overflows; the mask is applied to the exponent,
before exp2. Without g the decay factor is 1. Column j of A is the chunk's row j.
"""

import math

import torch

from ._contract import F32, Contract, Launch, Launcher, Port
from ._decay import chunked, pair_decay, per_key_head, per_value_head, unchunked, zero_chunked
from ._tiles import by_dtype, chunk_limits, precision

CONTRACT = Contract(
    inputs={
        "k": Port("B T H K"),
        "beta": Port("B T HV"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
    },
    outputs={"A": Port("B T HV C", F32, unit="gram/strict_lower/{gating}")},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * C * K",
    presence={"gating": ("g", "gated", "ungated")},
)


def reference(k, beta, g, *, C):
    """k [B, T, H, K], beta [B, T, HV], g [B, T, HV] or None -> A [B, T, HV, C]."""
    b_k = chunked(per_value_head(k, beta.shape[2]), C)
    A = torch.einsum("bnihk,bnjhk->bnhij", b_k, b_k) * chunked(beta, C).mT.unsqueeze(-1)
    if g is not None:
        A = A * pair_decay(chunked(g, C))
    return {"A": unchunked(A.tril(-1).transpose(2, 3), k.shape[1])}


def vjp(d_A, k, beta, g, *, needs, C):
    """With D = dA E below the diagonal, P = beta_i D and R = k k^T:

    dk = (P + P^T) k, summed over the group;  dbeta = rowsum(D R);  dg = ln 2 (rowsum - colsum)(P R).
    """
    T, H, HV = k.shape[1], k.shape[2], beta.shape[2]
    b_k = chunked(per_value_head(k, HV), C)
    D = zero_chunked(d_A, C).transpose(2, 3).tril(-1)
    if g is not None:
        D = D * pair_decay(chunked(g, C))
    P = D * chunked(beta, C).mT.unsqueeze(-1)
    gradients = {}
    if "k" in needs:
        d_k = torch.einsum("bnhij,bnjhk->bnihk", P + P.mT, b_k)
        gradients["k"] = per_key_head(unchunked(d_k, T), H)
    if needs & {"beta", "g"}:
        R = torch.einsum("bnihk,bnjhk->bnhij", b_k, b_k)
    if "beta" in needs:
        gradients["beta"] = unchunked((D * R).sum(-1).mT, T)
    if "g" in needs:
        PR = P * R
        gradients["g"] = math.log(2) * unchunked((PR.sum(-1) - PR.sum(-2)).mT, T)
    return gradients


def configs(axes, device):
    tile = {"BK": 64, "BK_F32": 32}
    if axes["C"] == 128:
        return [tile | {"num_warps": 8, "num_stages": 2}]
    return [tile | {"num_warps": 4, "num_stages": 2}, tile | {"BK": 128, "num_warps": 4, "num_stages": 2}]


def launch(k, beta, g, A, *, C, seqs, config):
    from ..kernels.chunk_scaled_dot_kkt import chunk_scaled_dot_kkt_kernel

    B, T, H, K = k.shape
    HV = beta.shape[2]
    return [
        Launch(
            chunk_scaled_dot_kkt_kernel,
            grid=(B * seqs.NT * HV,),
            args=dict(
                k=k, beta=beta, g=g, A=A, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
                T=T, NT=seqs.NT, H=H, HV=HV,
            ),
            constexprs=dict(K=K, C=C, BK=by_dtype(config, "BK", k.dtype, K), PRECISION=precision(k.dtype)),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


def vjp_configs(axes, device):
    warps = 8 if axes["C"] == 128 else 4
    return [{"BK": 64, "BK_F32": 16, "num_warps": warps, "num_stages": 1}]


def vjp_launch(d_A, k, beta, g, d_k, d_beta, d_g, *, C, seqs, config):
    from ..kernels.chunk_scaled_dot_kkt_vjp import chunk_scaled_dot_kkt_vjp_kernel

    B, T, H, K = k.shape
    return [
        Launch(
            chunk_scaled_dot_kkt_vjp_kernel,
            grid=(B * seqs.NT * H,),
            args=dict(
                d_A=d_A, k=k, beta=beta, g=g, d_k=d_k, d_beta=d_beta, d_g=d_g, cu_seqlens=seqs.cu_seqlens,
                chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, H=H, HV=beta.shape[2],
            ),
            constexprs=dict(K=K, C=C, BK=by_dtype(config, "BK", k.dtype, K), PRECISION=precision(k.dtype)),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, chunk_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, vjp_configs, chunk_limits)]
