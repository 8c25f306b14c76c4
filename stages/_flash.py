"""Tiles of flash attention, and the launches of its gradient: what rows need first, then keys, and queries."""

from ._contract import Launch, ceil_div
from ._tiles import by_dtype, padded, precision, too_long, whole


def flash_limits(axes, device):
    """None, or why the kernels, which hold whole rows on chip, refuse these widths."""
    return too_long(axes, "D", "DV")


def fwd_configs(axes, device):
    """BM queries by BN keys. Four warps leave room for two programs on a multiprocessor, of which one multiplies while
    the other takes exponents."""
    wide = max(axes["D"], axes["DV"])
    if wide > 128:
        found = [(64, 64, 8, 1)] if device == "sm_80" else [(128, 64, 8, 2), (64, 64, 8, 1)]
    elif device == "sm_80":
        found = [(64, 64, 4, 2), (128, 64, 8, 2)]
    else:
        found = [(64, 64, 4, 3), (128, 128, 8, 3), (128, 64, 8, 3)]
    return in_float32(found, ONE_LOOP=one_loop(axes, device))


def key_configs(axes, device):
    """Of the gradients of keys and values: BM queries by BN keys. With two stages a tile is asked for only when the one
    before has been multiplied."""
    if max(axes["D"], axes["DV"]) > 128:
        found = [(64, 64, 8, 1)]
    elif device == "sm_80":
        found = [(64, 64, 8, 2), (64, 128, 8, 1)]
    else:
        found = [(64, 128, 8, 3), (64, 128, 8, 2), (64, 64, 8, 2)]
    return with_hopper(in_float32(found), axes, device)


def query_configs(axes, device):
    """The same of those of queries."""
    if max(axes["D"], axes["DV"]) > 128:
        found = [(64, 64, 8, 1)]
    else:
        found = [(64, 64, 4, 2), (128, 64, 8, 2)] if device == "sm_80" else [(128, 64, 8, 3), (64, 64, 4, 2)]
    return in_float32(found, ONE_LOOP=one_loop(axes, device))


def one_loop(axes, device):
    """Whether tiles at a border are a branch in the loop of all tiles. On sm_80 that takes more registers than there
    are, and for sm_100 Triton 3.7 does not compile it."""
    return int(device == "sm_90" and max(axes["D"], axes["DV"]) <= 128)


def with_hopper(configs, axes, device):
    """The same, after the first of them by the kernel that is written for Hopper, in 16 bits, where that takes the
    widths."""
    plain = [{**config, "gluon": 0} for config in configs]
    takes = device == "sm_90" and axes["D"] == axes["DV"] == 128
    return [{**plain[0], "gluon": 1, "gluon_F32": 0}, *plain] if takes else plain


def by_hopper(config, d_o, q, k, slopes, softcap, dropped):
    """Whether that kernel is asked for, and these inputs are what it is for."""
    plain = d_o is not None and slopes is None and not softcap and not dropped
    return plain and bool(by_dtype(config, "gluon", q.dtype)) and min(q.shape[1], k.shape[1]) > 0


def in_float32(found, **shared):
    """Configurations, with those of float32 beside them."""
    shared |= {"BM_F32": 32, "BN_F32": 32, "num_stages_F32": 1}
    return [{"BM": BM, "BN": BN, "num_warps": warps, "num_stages": stages, **shared} for BM, BN, warps, stages in found]


def widths(q, v, softcap, dropped):
    """What the two large kernels are compiled for."""
    D, DV, dtype = q.shape[-1], v.shape[-1], q.dtype
    return dict(
        D=D, DV=DV, BD=whole(D, dtype), BV=whole(DV, dtype), CAPPED=bool(softcap), DROPPED=bool(dropped),
        PRECISION=precision(dtype),
    )  # fmt: skip


def lengths(given):
    (Sq, HQ), (Sk, H) = given["q"].shape[1:3], given["k"].shape[1:3]
    return dict(Sq=Sq, Sk=Sk, H=H, HQ=HQ)


def preprocess(d_o, d_lse, o, lse, sinks, delta, terms):
    from ..kernels.flash_bwd import flash_bwd_preprocess_kernel

    B, Sq, HQ, DV = o.shape
    rows, BV = B * Sq * HQ, whole(DV, o.dtype)
    BR = max(16, 4096 // BV)
    return Launch(
        flash_bwd_preprocess_kernel,
        grid=(ceil_div(rows, BR),),
        args=dict(d_o=d_o, d_lse=d_lse, o=o, lse=lse, sinks=sinks, delta=delta, terms=terms, rows=rows, HQ=HQ),
        constexprs=dict(DV=DV, BV=BV, BR=BR),
        num_warps=4,
        num_stages=1,
    )


def query_words(first, end, lse, delta, words):
    from ..kernels.flash_bwd import query_words_kernel

    (B, Sq, HQ), BH = lse.shape, min(64, padded(lse.shape[2]))
    BT = 1024 // BH
    return Launch(
        query_words_kernel,
        grid=(ceil_div(B * Sq, BT) * ceil_div(HQ, BH),),
        args=dict(first=first, end=end, lse=lse, delta=delta, words=words, tokens=B * Sq, Sq=Sq, HQ=HQ),
        constexprs=dict(BT=BT, BH=BH),
        num_warps=4,
        num_stages=1,
    )


def query_rows(lse, delta, words):
    from ..kernels.flash_bwd import query_rows_kernel

    (B, Sq, HQ), BH = lse.shape, min(64, padded(lse.shape[2]))
    BT = 1024 // BH
    return Launch(
        query_rows_kernel,
        grid=(B * ceil_div(Sq, BT) * ceil_div(HQ, BH),),
        args=dict(lse=lse, delta=delta, words=words, Sq=Sq, HQ=HQ),
        constexprs=dict(BT=BT, BH=BH),
        num_warps=4,
        num_stages=1,
    )


def query_span(first, end, low, high):
    from ..kernels.flash_bwd import query_span_kernel

    (B, Sq), Sk, BN = first.shape, low.shape[1], 128
    return Launch(
        query_span_kernel,
        grid=(B * ceil_div(Sk, BN),),
        args=dict(first=first, end=end, low=low, high=high, Sq=Sq, Sk=Sk, steps=Sq.bit_length()),
        constexprs=dict(BN=BN),
        num_warps=4,
        num_stages=1,
    )


def by_keys_on_hopper(q, k, v, low, high, d_o, words, d_k, d_v, scale, config):
    from ..kernels.flash_bwd_dkdv_sm90 import flash_bwd_dkdv_sm90_kernel

    (B, Sk, H, D), (Sq, HQ), BN = k.shape, q.shape[1:3], config["BN"]
    return Launch(
        flash_bwd_dkdv_sm90_kernel,
        grid=(B * H * ceil_div(Sk, BN),),
        args=dict(
            q=q, k=k, v=v, low=low, high=high, d_o=d_o, words=words, d_k=d_k, d_v=d_v, scale=scale, Sq=Sq, Sk=Sk, H=H,
            HQ=HQ,
        ),
        constexprs=dict(D=D, BM=config["BM"], BN=BN, STAGES=config["num_stages"], W=config["num_warps"]),
        num_warps=config["num_warps"],
        num_stages=1,
    )  # fmt: skip


def by_keys(given, widths, d_k, d_v, config):
    from ..kernels.flash_bwd import flash_bwd_dkdv_kernel

    dtype, B, shared = given["q"].dtype, len(given["q"]), given | lengths(given)
    BM, BN = by_dtype(config, "BM", dtype), by_dtype(config, "BN", dtype)
    return Launch(
        flash_bwd_dkdv_kernel,
        grid=(B * shared["H"] * ceil_div(shared["Sk"], BN),),
        args=dict(**shared, d_k=d_k, d_v=d_v),
        constexprs=dict(**widths, BM=BM, BN=BN),
        num_warps=config["num_warps"],
        num_stages=by_dtype(config, "num_stages", dtype),
    )


def by_queries(given, widths, d_q, config):
    from ..kernels.flash_bwd import flash_bwd_dq_kernel

    dtype, B, shared = given["q"].dtype, len(given["q"]), given | lengths(given)
    BM, BN = by_dtype(config, "BM", dtype), by_dtype(config, "BN", dtype)
    return Launch(
        flash_bwd_dq_kernel,
        grid=(B * shared["HQ"] * ceil_div(shared["Sq"], BM),),
        args=dict(**shared, d_q=d_q),
        constexprs=dict(**widths, BM=BM, BN=BN, ONE_LOOP=bool(config["ONE_LOOP"])),
        num_warps=config["num_warps"],
        num_stages=by_dtype(config, "num_stages", dtype),
    )
