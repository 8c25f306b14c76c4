"""Output of each chunk: what its rows read from the entering state, and from the rows at or before them.

    o = scale (gam q h + (E * q k^T) v),   gam_i = 2^(g_i),   E[i, j] = 2^(g_i - g_j) for j <= i, else 0

g is the chunk sum of a gate; g_gamma a fixed natural log decay per token and head, which makes the exponent of
the row with number r in its chunk g_gamma (r + 1) log2 e. Both given, they add; with neither nothing decays.
Every exponent used is <= 0; the mask is applied to it before exp2.
"""

import math

import torch

from ._contract import F32, Contract, Launch, Launcher, Port, ceil_div
from ._decay import chunk_log_decay, chunked, pair_decay, per_key_head, per_value_head, unchunked, zero_chunked
from ._sum_parts import sum_parts
from ._tiles import by_dtype, precision, state_limits

CONTRACT = Contract(
    inputs={
        "q": Port("B T H K"),
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
        "g_gamma": Port("HV", F32, unit="log_decay/ln/slope", where="<= 0", optional=True),
    },
    outputs={"o": Port("B T HV V")},
    params={"scale": None},
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * (K * V + C * (K + V))",
)


def reference(q, k, v, h, g, g_gamma, *, C, scale):
    """q, k [B, T, H, K], v [B, T, HV, V], h [B, NT, HV, K, V], g [B, T, HV], g_gamma [HV]."""
    T, HV = v.shape[1:3]
    g = chunked(chunk_log_decay(g, g_gamma, v, C), C)
    q, k, v = chunked(per_value_head(q, HV), C), chunked(per_value_head(k, HV), C), chunked(v, C)
    A = pair_decay(g) * torch.einsum("bnihk,bnjhk->bnhij", q, k)
    o = torch.einsum("bnihk,bnhkv->bnihv", torch.exp2(g)[..., None] * q, h)
    o = o + torch.einsum("bnhij,bnjhv->bnihv", A, v)
    return {"o": scale * unchunked(o, T)}


def vjp(d_o, q, k, v, h, g, g_gamma, *, needs, C, scale):
    """With d = scale d_o, P = E * d v^T and Z = tril(P * q k^T, -1):

        dv = (E * q k^T)^T d    dq = P k + gam d h^T    dk = P^T q    dh = (gam q)^T d
        dg = ln 2 (rowsum Z - colsum Z + gam <q, d h^T>)

    Slopes are constants: no gradient by g_gamma.
    """
    (T, H), HV = k.shape[1:3], v.shape[2]
    g = chunked(chunk_log_decay(g, g_gamma, v, C), C)
    q, k, v = chunked(per_value_head(q, HV), C), chunked(per_value_head(k, HV), C), chunked(v, C)
    d, gam, E = zero_chunked(scale * d_o, C), torch.exp2(g)[..., None], pair_decay(g)
    R = torch.einsum("bnihk,bnjhk->bnhij", q, k)
    P = E * torch.einsum("bnihv,bnjhv->bnhij", d, v)
    dq_state = gam * torch.einsum("bnihv,bnhkv->bnihk", d, h)
    dq = dq_state + torch.einsum("bnhij,bnjhk->bnihk", P, k)
    dk = torch.einsum("bnhij,bnihk->bnjhk", P, q)
    dv = torch.einsum("bnhij,bnihv->bnjhv", E * R, d)
    dh = torch.einsum("bnihk,bnihv->bnhkv", gam * q, d)
    Z = (P * R).tril(-1)
    dg = math.log(2) * ((Z.sum(-1) - Z.sum(-2)).transpose(-1, -2) + (q * dq_state).sum(-1))
    grads = {
        "q": per_key_head(unchunked(dq, T), H), "k": per_key_head(unchunked(dk, T), H), "v": unchunked(dv, T),
        "h": dh, "g": unchunked(dg, T),
    }  # fmt: skip
    return {name: x for name, x in grads.items() if name in needs}


def configs(axes, device):
    shared = {"BK": 64, "BK_F32": 32, "BV_F32": 32, "num_stages_F32": 1}
    if axes["C"] == 128:
        tiles = [(64, 8, 2), (64, 8, 1)]
    else:
        tiles = [(128, 4, 2), (128, 4, 3), (64, 4, 2), (128, 8, 2)]
    return [{**shared, "BV": BV, "num_warps": warps, "num_stages": stages} for BV, warps, stages in tiles]


def launch(q, k, v, h, g, g_gamma, o, *, C, scale, seqs, config):
    from ..kernels.chunk_o import chunk_o_kernel

    (B, T, H, K), (HV, V) = q.shape, v.shape[2:]
    BV = by_dtype(config, "BV", q.dtype, V)
    return [
        Launch(
            chunk_o_kernel,
            grid=(B * seqs.NT * HV * ceil_div(V, BV),),
            args=dict(
                q=q, k=k, v=v, h=h, g=g, g_gamma=g_gamma, o=o, scale=scale, cu_seqlens=seqs.cu_seqlens,
                chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, H=H, HV=HV,
            ),
            constexprs=dict(
                K=K, V=V, C=C, BK=by_dtype(config, "BK", q.dtype, K), BV=BV, PRECISION=precision(q.dtype)
            ),
            num_warps=config["num_warps"],
            num_stages=by_dtype(config, "num_stages", q.dtype),
        )
    ]  # fmt: skip


SCRATCH = {"dg_parts": Port("NK B T HV", F32, doc="d_g by tile of K")}


def vjp_configs(axes, device):
    """BK, BV tile the kernel that makes d_v and d_h; WC, WK, WV the one for d_q, d_k, d_g, whose tiles of K NK counts.

    64 rows at a time run on Hopper's wide products, and spill elsewhere and for long V.
    """
    C = axes["C"]
    shared = {
        "BK": 64, "BK_F32": 32, "BV": 64, "BV_F32": 32, "num_warps": 8 if C == 128 else 4, "num_stages": 2,
        "num_stages_F32": 1, "WC_F32": min(C, 32), "WK_F32": 32, "WV": 64, "WV_F32": 32, "write_stages_F32": 1,
        "NK": ceil_div(axes["K"], 32),
    }  # fmt: skip
    narrow, wide = [(32, 64, 4, 2), (32, 128, 4, 2)], [(64, 64, 4, 2), (64, 64, 4, 1), (64, 64, 8, 2)]
    tiles = wide + narrow if device == "sm_90" and axes["V"] <= 128 else narrow + wide
    return [
        {**shared, "WC": min(C, WC), "WK": WK, "write_warps": warps, "write_stages": stages}
        for WC, WK, warps, stages in tiles
    ]


def vjp_launch(d_o, q, k, v, h, g, g_gamma, d_q, d_k, d_v, d_h, d_g, dg_parts, *, C, scale, seqs, config):
    launches = []
    if d_v is not None or d_h is not None:
        launches.append(by_values(d_o, q, k, v, g, g_gamma, d_v, d_h, C=C, scale=scale, seqs=seqs, config=config))
    if d_q is not None or d_k is not None or d_g is not None:
        launches += by_keys(
            d_o, q, k, v, h, g, g_gamma, d_q, d_k, d_g, dg_parts, C=C, scale=scale, seqs=seqs, config=config
        )
    return launches


def by_values(d_o, q, k, v, g, g_gamma, d_v, d_h, *, C, scale, seqs, config):
    from ..kernels.chunk_o_vjp import chunk_o_vjp_vh_kernel

    (B, T, H, K), (HV, V) = q.shape, v.shape[2:]
    BV = by_dtype(config, "BV", q.dtype, V)
    return Launch(
        chunk_o_vjp_vh_kernel,
        grid=(B * seqs.NT * HV * ceil_div(V, BV),),
        args=dict(
            q=q, k=k, g=g, g_gamma=g_gamma, d_o=d_o, d_v=d_v, d_h=d_h, scale=scale, cu_seqlens=seqs.cu_seqlens,
            chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, H=H, HV=HV,
        ),
        constexprs=dict(
            K=K, V=V, C=C, BK=by_dtype(config, "BK", q.dtype, K), BV=BV, PRECISION=precision(q.dtype)
        ),
        num_warps=config["num_warps"],
        num_stages=by_dtype(config, "num_stages", q.dtype),
    )  # fmt: skip


def by_keys(d_o, q, k, v, h, g, g_gamma, d_q, d_k, d_g, dg_parts, *, C, scale, seqs, config):
    """Each tile of K by itself, then the sum of d_g's parts when there is more than one."""
    from ..kernels.chunk_o_vjp import chunk_o_vjp_qkg_kernel

    (B, T, H, K), (HV, V) = q.shape, v.shape[2:]
    BK, BV = by_dtype(config, "WK", q.dtype, K), by_dtype(config, "WV", q.dtype, V)
    BC, NK = by_dtype(config, "WC", q.dtype), ceil_div(K, BK)
    gate = None if d_g is None else d_g if NK == 1 else dg_parts
    by_tile = Launch(
        chunk_o_vjp_qkg_kernel,
        grid=(B * seqs.NT * H * (C // BC) * NK,),
        args=dict(
            q=q, k=k, v=v, h=h, g=g, g_gamma=g_gamma, d_o=d_o, d_q=d_q, d_k=d_k, d_g=gate, scale=scale,
            cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, R=B * T, H=H, HV=HV,
        ),
        constexprs=dict(K=K, V=V, C=C, BC=BC, BK=BK, BV=BV, PRECISION=precision(q.dtype)),
        num_warps=config["write_warps"],
        num_stages=by_dtype(config, "write_stages", q.dtype),
    )  # fmt: skip
    return [by_tile] if gate is d_g else [by_tile, sum_parts(dg_parts, d_g, NK)]


LAUNCHERS = [Launcher("triton", launch, configs, state_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, vjp_configs, state_limits, SCRATCH)]
