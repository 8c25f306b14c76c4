"""Tiles of flash attention, and the launches of its gradient: what rows need first, then keys, queries and sinks."""

from ._contract import Launch, ceil_div
from ._head_sums import head_sums
from ._tiles import by_dtype, precision, too_long, whole


def flash_limits(axes, device):
    """None, or why the kernels, which hold whole rows on chip, refuse these widths."""
    return too_long(axes, "D", "DV")


def tiles(BM, BN, warps, stages):
    return {"BM": BM, "BN": BN, "num_warps": warps, "num_stages": stages}


def fwd_configs(axes, device):
    """BM queries by BN keys."""
    wide = max(axes["D"], axes["DV"])
    if wide > 128:
        found = [tiles(64, 64, 8, 1)] if device == "sm_80" else [tiles(128, 64, 8, 2), tiles(64, 64, 8, 1)]
    elif device == "sm_80":
        found = [tiles(128, 64, 8, 2), tiles(64, 64, 4, 2)]
    else:
        found = [tiles(128, 64, 8, 3), tiles(128, 128, 8, 2), tiles(64, 64, 4, 3)]
    return [{**each, "BM_F32": 32, "BN_F32": 32, "num_stages_F32": 1} for each in found]


def bwd_configs(axes, device):
    """BM and BN of the gradients of keys and values, WM and WN of those of queries."""
    wide = max(axes["D"], axes["DV"])
    if wide > 128:
        keys, queries = [(64, 64, 8, 1)], [(64, 64, 8, 1)]
    else:
        keys, queries = [(64, 128, 8, 2), (64, 64, 8, 2), (64, 128, 8, 1)], [(128, 64, 8, 2), (64, 64, 4, 2)]
    shared = {"BM_F32": 32, "BN_F32": 32, "WM_F32": 32, "WN_F32": 32, "num_stages_F32": 1, "query_stages_F32": 1}
    return [
        {**tiles(*key), "WM": WM, "WN": WN, "query_warps": warps, "query_stages": stages, **shared}
        for key in keys
        for WM, WN, warps, stages in queries
    ]


def bwd_launches(given, dropped, d_lse, o, sinks, d_q, d_k, d_v, d_sinks, terms, parts, seqs, config):
    """given: what each of the two large kernels takes; what nobody asked for is left out."""
    (_, Sq, HQ, D), (Sk, H, DV), dtype = given["q"].shape, given["v"].shape[1:], given["q"].dtype
    shared = given | dict(Sq=Sq, Sk=Sk, H=H, HQ=HQ)
    widths = dict(
        D=D, DV=DV, BD=whole(D, dtype), BV=whole(DV, dtype), CAPPED=bool(given["softcap"]), DROPPED=dropped,
        PRECISION=precision(dtype),
    )  # fmt: skip
    delta = given["delta"] if d_q is not None or d_k is not None else None
    terms = terms if d_sinks is not None else None
    launches = []
    if delta is not None or terms is not None:
        launches.append(preprocess(given["d_o"], d_lse, o, given["lse"], sinks, delta, terms, given["q"], DV))
    if d_k is not None or d_v is not None:
        launches.append(by_keys(shared, widths, d_k, d_v, config))
    if d_q is not None:
        launches.append(by_queries(shared, widths, d_q, config))
    return launches + (head_sums(terms, parts, d_sinks, seqs, config) if d_sinks is not None else [])


def preprocess(d_o, d_lse, o, lse, sinks, delta, terms, q, DV):
    from ..kernels.flash_bwd import flash_bwd_preprocess_kernel

    B, Sq, HQ, _ = q.shape
    rows, BV = B * Sq * HQ, whole(DV, q.dtype)
    BR = max(16, 4096 // BV)
    return Launch(
        flash_bwd_preprocess_kernel,
        grid=(ceil_div(rows, BR),),
        args=dict(d_o=d_o, d_lse=d_lse, o=o, lse=lse, sinks=sinks, delta=delta, terms=terms, rows=rows, HQ=HQ),
        constexprs=dict(DV=DV, BV=BV, BR=BR),
        num_warps=4,
        num_stages=1,
    )


def by_keys(shared, widths, d_k, d_v, config):
    from ..kernels.flash_bwd import flash_bwd_dkdv_kernel

    dtype, B = shared["q"].dtype, shared["q"].shape[0]
    BM, BN = by_dtype(config, "BM", dtype), by_dtype(config, "BN", dtype)
    return Launch(
        flash_bwd_dkdv_kernel,
        grid=(B * shared["H"] * ceil_div(shared["Sk"], BN),),
        args=dict(**shared, d_k=d_k, d_v=d_v),
        constexprs=dict(**widths, BM=BM, BN=BN),
        num_warps=config["num_warps"],
        num_stages=by_dtype(config, "num_stages", dtype),
    )


def by_queries(shared, widths, d_q, config):
    from ..kernels.flash_bwd import flash_bwd_dq_kernel

    dtype, B = shared["q"].dtype, shared["q"].shape[0]
    BM, BN = by_dtype(config, "WM", dtype), by_dtype(config, "WN", dtype)
    return Launch(
        flash_bwd_dq_kernel,
        grid=(B * shared["HQ"] * ceil_div(shared["Sq"], BM),),
        args=dict(**shared, d_q=d_q),
        constexprs=dict(**widths, BM=BM, BN=BN),
        num_warps=config["query_warps"],
        num_stages=by_dtype(config, "query_stages", dtype),
    )
