"""Gradient of the gate of chunk_h and chunk_o, from pair sums in each chunk and the states at its ends.

With d = scale d_o, gam = 2^g, ga = 2^(g_C - g), E[i, j] = 2^(g_i - g_j) for j <= i, else 0, P = E * d v^T and
Z = tril(P * q k^T, -1):

    d_g = ln 2 (rowsum Z - colsum Z + gam <q, d h^T> - t)          t = ga <k, v d_s^T>

The chunk's last valid row takes the sum of t over the others and 2^g_C <h, d_s> in place of its own. arXiv:2312.06635.
"""

import math

import torch

from ._contract import F32, Contract, Launch, Launcher, Port
from ._decay import chunk_log_decay, chunked, pair_decay, per_value_head, unchunked, zero_chunked
from ._tiles import by_dtype, precision, state_limits
from .chunk_delta_grads import through_exit

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)"),
        "g_gamma": Port("HV", F32, unit="log_decay/ln/slope", where="<= 0", optional=True),
        "d_o": Port("B T HV V"),
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "d_s": Port("B NT HV K V", unit="cotangent/state/chunk_exit"),
    },
    outputs={"d_g": Port("B T HV", F32, unit="cotangent/log_decay/log2/chunk_sum")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * (2 * K * V + C * (K + V))",
)


def reference(q, k, v, g, g_gamma, d_o, h, d_s, *, scale, C):
    """q, k [B, T, H, K], v, d_o [B, T, HV, V], g [B, T, HV], g_gamma [HV], h, d_s [B, NT, HV, K, V]."""
    T, HV = v.shape[1:3]
    b = chunked(chunk_log_decay(g, g_gamma, v, C), C)
    q, k, v = chunked(per_value_head(q, HV), C), chunked(per_value_head(k, HV), C), chunked(v, C)
    d, last = zero_chunked(scale * d_o, C), b[:, :, -1:]
    Z = torch.einsum("bnihv,bnjhv->bnhij", d, v) * torch.einsum("bnihk,bnjhk->bnhij", q, k)
    Z = (pair_decay(b) * Z).tril(-1)
    read = torch.exp2(b) * (q * torch.einsum("bnihv,bnhkv->bnihk", d, h)).sum(-1)
    t = torch.exp2(last - b) * (k * torch.einsum("bnihv,bnhkv->bnihk", v, d_s)).sum(-1)
    inside = unchunked((Z.sum(-1) - Z.sum(-2)).transpose(-1, -2) + read, T)
    return {"d_g": math.log(2) * (inside + through_exit(t, torch.exp2(last), h, d_s, T))}


def configs(axes, device):
    """BK key columns of a chunk at a time, against BV value columns."""
    shared = {"BK": 64, "BK_F32": 32, "BV": 64, "BV_F32": 32, "num_stages_F32": 1}
    if axes["C"] == 128:
        tiles = [(8, 2), (8, 1)]
    else:
        tiles = [(4, 3), (4, 2)] if device == "sm_90" else [(8, 2), (8, 3)]
    return [{**shared, "num_warps": warps, "num_stages": stages} for warps, stages in tiles]


def launch(q, k, v, g, g_gamma, d_o, h, d_s, d_g, *, scale, C, seqs, config):
    from ..kernels.chunk_gate_grads import chunk_gate_grads_kernel

    (B, T, H, K), (HV, V) = k.shape, v.shape[2:]
    return [
        Launch(
            chunk_gate_grads_kernel,
            grid=(B * seqs.NT * HV,),
            args=dict(
                q=q, k=k, v=v, g=g, g_gamma=g_gamma, d_o=d_o, h=h, d_s=d_s, d_g=d_g, scale=scale,
                cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, H=H, HV=HV,
            ),
            constexprs=dict(
                K=K, V=V, C=C, BK=by_dtype(config, "BK", k.dtype, K), BV=by_dtype(config, "BV", k.dtype, V),
                PRECISION=precision(k.dtype),
            ),
            num_warps=config["num_warps"],
            num_stages=by_dtype(config, "num_stages", k.dtype),
        )
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, state_limits)]
