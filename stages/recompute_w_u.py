"""What the rows of each chunk read and write, the dependences among them resolved (WY form).

    w = Ai (beta 2^g k)    u = Ai (beta v)

Without g the factor 2^g is 1. What lies above Ai's diagonal is 0 by its unit and is not read.
"""

import math

import torch

from ._contract import F32, Contract, Launch, Launcher, Port
from ._decay import chunked, per_key_head, per_value_head, unchunked, zero_chunked
from ._tiles import by_dtype, chunk_limits, precision

CONTRACT = Contract(
    inputs={
        "k": Port("B T H K"),
        "v": Port("B T HV V"),
        "beta": Port("B T HV"),
        "Ai": Port("B T HV C", unit="gram/unit_lower_inverse/{gating}"),
        "g": Port("B T HV", F32, unit="log_decay/log2/chunk_sum", where="non_increasing(T in chunk)", optional=True),
    },
    outputs={
        "w": Port("B T HV K", unit="wy/decayed_key"),
        "u": Port("B T HV V", unit="wy/value"),
    },
    requires=("HV % H == 0",),
    flops="2 * B * T * HV * C * (K + V)",
    presence={"gating": ("g", "gated", "ungated")},
)


def reference(k, v, beta, Ai, g, *, C):
    """k [B, T, H, K], v [B, T, HV, V], beta [B, T, HV], Ai [B, T, HV, C], g [B, T, HV] or None."""
    T, HV = v.shape[1:3]
    rate = beta if g is None else beta * torch.exp2(g)
    return {
        "w": chunk_product(Ai, rate.unsqueeze(-1) * per_value_head(k, HV), C),
        "u": chunk_product(Ai, beta.unsqueeze(-1) * v, C),
    }


def chunk_product(M, x, C):
    """tril(M) x inside each chunk: M [B, T, HV, C], x [B, T, HV, D] -> [B, T, HV, D]."""
    b_M = chunked(M, C).transpose(2, 3).tril()
    return unchunked(torch.einsum("bnhij,bnjhd->bnihd", b_M, chunked(x, C)), x.shape[1])


def vjp(d_w, d_u, k, v, beta, Ai, g, *, needs, C):
    """With yw = Ai^T dw, yu = Ai^T du, gam = 2^g, t = <k, yw> and s = <v, yu>, both taken as sums over pairs of rows,
    t_j = sum over i of Ai[i, j] <dw_i, k_j>:

    dk = beta gam yw, summed over the group;  dv = beta yu;  dbeta = gam t + s;  dg = ln 2 beta gam t;
    dAi = tril(dw (beta gam k)^T + du (beta v)^T). An absent cotangent counts as 0.
    """
    H = k.shape[2]
    k = per_value_head(k, v.shape[2])
    gam = torch.ones_like(beta) if g is None else torch.exp2(g)
    rate = beta * gam
    gradients = {}
    if needs & {"k", "v"}:
        y_w = torch.zeros_like(k) if d_w is None else transposed_product(Ai, d_w, C)
        y_u = torch.zeros_like(v) if d_u is None else transposed_product(Ai, d_u, C)
        gradients |= {"k": per_key_head(rate.unsqueeze(-1) * y_w, H), "v": beta.unsqueeze(-1) * y_u}
    if needs & {"beta", "g"}:
        t = torch.zeros_like(beta) if d_w is None else pair_sums(Ai, d_w, k, C)
        s = torch.zeros_like(beta) if d_u is None else pair_sums(Ai, d_u, v, C)
        gradients |= {"beta": gam * t + s, "g": math.log(2) * rate * t}
    if "Ai" in needs:
        pairs = [(d_w, rate.unsqueeze(-1) * k), (d_u, beta.unsqueeze(-1) * v)]
        gradients["Ai"] = sum(lower_pairs(d, x, C) for d, x in pairs if d is not None)
    return {name: gradients[name] for name in needs}


def transposed_product(M, d, C):
    """tril(M)^T d inside each chunk: M [B, T, HV, C], d [B, T, HV, D] -> [B, T, HV, D]."""
    b_M = chunked(M, C).transpose(2, 3).tril()
    return unchunked(torch.einsum("bnhji,bnjhd->bnihd", b_M, zero_chunked(d, C)), d.shape[1])


def pair_sums(M, d, x, C):
    """Sum over i of tril(M)[i, j] <d_i, x_j> inside each chunk: [B, T, HV]."""
    b_M = chunked(M, C).transpose(2, 3)
    products = torch.einsum("bnihd,bnjhd->bnhij", zero_chunked(d, C), chunked(x, C))
    return unchunked((b_M * products).tril().sum(-2).mT, x.shape[1])


def lower_pairs(d, x, C):
    """<d_i, x_j> for j <= i in the chunk, else 0: d, x [B, T, HV, D] -> [B, T, HV, C]."""
    pairs = torch.einsum("bnihd,bnjhd->bnhij", chunked(d, C), chunked(x, C)).tril()
    return unchunked(pairs.transpose(2, 3), d.shape[1])


def configs(axes, device):
    C = axes["C"]
    tile = {"BD": 64, "BD_F32": 32, "BC": C, "BC_F32": min(C, 32)}
    if C == 128:
        return [tile | {"num_warps": 8, "num_stages": 1}]
    return [tile | {"BD": 128, "num_warps": 4, "num_stages": 1}, tile | {"num_warps": 4, "num_stages": 2}]


def launch(k, v, beta, Ai, g, w, u, *, C, seqs, config):
    from ..kernels.recompute_w_u import recompute_w_u_kernel

    (B, T, H, K), (HV, V) = k.shape, v.shape[2:]
    return [
        Launch(
            recompute_w_u_kernel,
            grid=(B * seqs.NT * HV,),
            args=dict(
                k=k, v=v, beta=beta, Ai=Ai, g=g, w=w, u=u, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
                T=T, NT=seqs.NT, H=H, HV=HV,
            ),
            constexprs=dict(
                K=K, V=V, C=C, BC=by_dtype(config, "BC", k.dtype), BK=by_dtype(config, "BD", k.dtype, K),
                BV=by_dtype(config, "BD", k.dtype, V), PRECISION=precision(k.dtype),
            ),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


def vjp_configs(axes, device):
    C = axes["C"]
    warps = 8 if C == 128 else 4
    return [{"BD": 64, "BD_F32": 32, "BC": C, "BC_F32": min(C, 32), "num_warps": warps, "num_stages": 1}]


def vjp_launch(d_w, d_u, k, v, beta, Ai, g, d_k, d_v, d_beta, d_Ai, d_g, *, C, seqs, config):
    from ..kernels.recompute_w_u_vjp import recompute_w_u_vjp_kernel

    (B, T, H, K), (HV, V) = k.shape, v.shape[2:]
    return [
        Launch(
            recompute_w_u_vjp_kernel,
            grid=(B * seqs.NT * (2 * HV + H),),
            args=dict(
                d_w=d_w, d_u=d_u, k=k, v=v, beta=beta, Ai=Ai, g=g, d_k=d_k, d_v=d_v, d_beta=d_beta, d_Ai=d_Ai, d_g=d_g,
                cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, H=H, HV=HV,
            ),
            constexprs=dict(
                K=K, V=V, C=C, BC=by_dtype(config, "BC", k.dtype), BK=by_dtype(config, "BD", k.dtype, K),
                BV=by_dtype(config, "BD", k.dtype, V), PRECISION=precision(k.dtype),
            ),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, chunk_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, vjp_configs, chunk_limits)]
