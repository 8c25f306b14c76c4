"""Output of each chunk from scores and queries that carry scale and decay already.

    o = qg h + A v

A is lower triangular; what lies above its diagonal is not read.
"""

import torch

from ._contract import Contract, Launch, Launcher, Port, ceil_div
from ._decay import chunked, unchunked, zero_chunked
from ._tiles import by_dtype, precision, state_limits

CONTRACT = Contract(
    inputs={
        "qg": Port("B T HV K", unit="query/decayed"),
        "A": Port("B T HV C", unit="attention/lower/gated"),
        "v": Port("B T HV V"),
        "h": Port("B NT HV K V", unit="state/chunk_entry"),
    },
    outputs={"o": Port("B T HV V")},
    flops="2 * B * T * HV * V * (K + C)",
)


def reference(qg, A, v, h, *, C):
    """qg [B, T, HV, K], A [B, T, HV, C], v [B, T, HV, V], h [B, NT, HV, K, V]."""
    A = chunked(A, C).transpose(2, 3).tril()
    o = torch.einsum("bnihk,bnhkv->bnihv", chunked(qg, C), h)
    o = o + torch.einsum("bnhij,bnjhv->bnihv", A, chunked(v, C))
    return {"o": unchunked(o, v.shape[1])}


def vjp(d_o, qg, A, v, h, *, needs, C):
    """dqg = do h^T    dA = tril(do v^T)    dv = A^T do    dh = qg^T do."""
    T = v.shape[1]
    d, A = zero_chunked(d_o, C), chunked(A, C).transpose(2, 3).tril()
    d_A = torch.einsum("bnihv,bnjhv->bnhij", d, chunked(v, C)).tril()
    grads = {
        "qg": unchunked(torch.einsum("bnihv,bnhkv->bnihk", d, h), T),
        "A": unchunked(d_A.transpose(2, 3), T),
        "v": unchunked(torch.einsum("bnhij,bnihv->bnjhv", A, d), T),
        "h": torch.einsum("bnihk,bnihv->bnhkv", chunked(qg, C), d),
    }
    return {name: x for name, x in grads.items() if name in needs}


def configs(axes, device):
    shared = {"BK": 64, "BK_F32": 32, "BV_F32": 32, "num_stages_F32": 1}
    if axes["C"] == 128:
        tiles = [(64, 8, 2), (64, 8, 1)]
    else:
        tiles = [(128, 4, 2), (64, 4, 2), (128, 8, 2), (64, 4, 3)]
    return [{**shared, "BV": BV, "num_warps": warps, "num_stages": stages} for BV, warps, stages in tiles]


def launch(qg, A, v, h, o, *, C, seqs, config):
    from ..kernels.chunk_o_k import chunk_o_k_kernel

    (B, T, HV, K), V = qg.shape, v.shape[-1]
    BV = by_dtype(config, "BV", qg.dtype, V)
    return [
        Launch(
            chunk_o_k_kernel,
            grid=(B * seqs.NT * HV * ceil_div(V, BV),),
            args=dict(
                qg=qg, A=A, v=v, h=h, o=o, cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table,
                T=T, NT=seqs.NT, HV=HV,
            ),
            constexprs=dict(
                K=K, V=V, C=C, BK=by_dtype(config, "BK", qg.dtype, K), BV=BV, PRECISION=precision(qg.dtype)
            ),
            num_warps=config["num_warps"],
            num_stages=by_dtype(config, "num_stages", qg.dtype),
        )
    ]  # fmt: skip


def vjp_configs(axes, device):
    """BK, BV tile K and V; one kernel makes d_v and d_h by tile of V, another d_qg and d_A."""
    warps = 8 if axes["C"] == 128 else 4
    shared = {"BK_F32": 32, "BV_F32": 32, "num_stages_F32": 1, "num_warps": warps}
    return [{**shared, "BK": BK, "BV": 64, "num_stages": stages} for BK, stages in ((64, 2), (64, 1), (32, 2))]


def vjp_launch(d_o, qg, A, v, h, d_qg, d_A, d_v, d_h, *, C, seqs, config):
    from ..kernels.chunk_o_k_vjp import chunk_o_k_vjp_read_kernel, chunk_o_k_vjp_write_kernel

    (B, T, HV, K), V = qg.shape, v.shape[-1]
    BK, BV = by_dtype(config, "BK", qg.dtype, K), by_dtype(config, "BV", qg.dtype, V)
    common = dict(cu_seqlens=seqs.cu_seqlens, chunk_table=seqs.chunk_table, T=T, NT=seqs.NT, HV=HV)
    tiles = dict(K=K, V=V, C=C, BK=BK, BV=BV, PRECISION=precision(qg.dtype))
    shape = dict(num_warps=config["num_warps"], num_stages=by_dtype(config, "num_stages", qg.dtype))
    launches = []
    if d_v is not None or d_h is not None:
        grid = (B * seqs.NT * HV * ceil_div(V, BV),)
        tensors = dict(d_o=d_o, qg=qg, A=A, d_v=d_v, d_h=d_h)
        launches.append(Launch(chunk_o_k_vjp_write_kernel, grid, tensors | common, tiles, **shape))
    if d_qg is not None or d_A is not None:
        grid = (B * seqs.NT * HV,)
        tensors = dict(d_o=d_o, v=v, h=h, d_qg=d_qg, d_A=d_A)
        launches.append(Launch(chunk_o_k_vjp_read_kernel, grid, tensors | common, tiles, **shape))
    return launches


LAUNCHERS = [Launcher("triton", launch, configs, state_limits)]
VJP_LAUNCHERS = [Launcher("triton", vjp_launch, vjp_configs, state_limits)]
