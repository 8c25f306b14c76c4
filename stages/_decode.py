"""Attention of a few queries over many keys: tiles, splits of the keys, launches of each split and of their sum."""

from dataclasses import replace

from ._contract import F32, Launch, Port, ceil_div
from ._eight_bits import as_bytes
from ._tiles import by_dtype, padded, precision, shared_memory, whole

SCRATCH = {
    "o_parts": Port("SPLITS B Sq HQ DV", F32, doc="the output over each split of the keys"),
    "lse_parts": Port("SPLITS B Sq HQ", F32, doc="its log-sum-exp"),
}
PROGRAMS = 132
"""Splits are made until so many programs run for one sequence: what the smallest batch needs to fill a GPU, and the
same for every batch, so that a sequence's bits do not depend on the others."""
KEYS = 512
"""The fewest keys that are worth a program of their own."""


def splits(keys, programs, fewest=KEYS):
    """programs: of one sequence without splits. fewest: keys of a split."""
    return max(1, min(ceil_div(PROGRAMS, max(1, programs)), ceil_div(keys, fewest)))


def decode_configs(keys, axes, widths, device):
    """keys: how many there are at most. axes: Sq, HQ and H. widths: of keys, of the part with the positions (0: none),
    and of values."""
    group = axes["Sq"] * (axes["HQ"] // axes["H"])
    # of up to 16 rows two warps have work, and more programs fit on a multiprocessor
    warps = 2 if group <= 16 and widths[1] == 0 and max(widths) <= 128 else 4
    shared = {"BM": 64, "num_warps": warps, **float32_tiles(widths)}
    shared["SPLITS"] = splits(keys, axes["H"] * ceil_div(group, 64))
    return [{"BN": BN, "num_stages": stages, **shared} for BN, stages in tiles(64, widths, device)]


def prefill_configs(widths, device):
    """As decode_configs, where queries are many and splits would only be summed."""
    shared = {"BM": 128, "num_warps": 8, "SPLITS": 1, **float32_tiles(widths)}
    return [{"BN": BN, "num_stages": stages, **shared} for BN, stages in tiles(128, widths, device)]


def tiles(BM, widths, device):
    """Three pairs of keys and stages at most, that have room beside BM rows of queries."""
    found = [(64, 3), (64, 2), (128, 2), (32, 2) if device == "sm_80" else (64, 1)]
    return [(BN, stages) for BN, stages in found if fits(BM, BN, stages, widths, device)][:3]


def fits(BM, BN, stages, widths, device):
    """Whether 16-bit tiles of BM rows of queries and BN keys have room: the queries, and every stage's keys and values;
    sm_80, whose queries and weights pass through it once, keeps the last stage's tiles in registers. Sums and barriers
    take less than 2 KiB."""
    D, DR, DV = (max(64, padded(width)) if width else 0 for width in widths)
    held, weights = (max(1, stages - 1), BM * BN) if device == "sm_80" else (stages, 0)
    return 2 * (BM * (D + DR) + weights + held * BN * (D + DR + DV)) + 2048 <= shared_memory(device)


def float32_tiles(widths):
    """float32 products are made by threads that read whole rows of both sides. Where 32 rows of queries take more than
    8 KiB, up to 120 kB of each thread's numbers end up in memory; with 16 rows, and twice the threads, 1 kB at most."""
    rows, warps = (32, 4) if 32 * 4 * sum(widths[:2]) <= 8192 else (16, 8)
    return {"BM_F32": rows, "BN_F32": rows, "num_warps_F32": warps, "num_stages_F32": 1}


def decode_launches(
    q, k, v, table, first, end, own, sinks, slopes, o, lse, o_parts, lse_parts, Sk, PAGE, scale, softcap, config,
    ropes=(None, None), scales=(None, None), SHARE=None, ROWS=None,
):  # fmt: skip
    """k, v [B, Sk, H, *], or [PAGES, PAGE, H, *] with the pages of each sequence in table. One split writes the result.
    ropes: what widens q and k, the same for all key heads. v None: the values are the keys. scales: of k and v
    in eight bits, of each row and head. first None: the first key
    of all. SHARE, ROWS: of the batches in a table, every SHARE have ROWS rows of the cache for themselves; None: one
    cache for all."""
    from ..kernels.flash_decode import flash_decode_kernel

    (B, Sq, HQ, D), (H, DV), N = q.shape, (k if v is None else v).shape[2:], config["SPLITS"]
    DR = 0 if ropes[0] is None else ropes[0].shape[-1]
    group = Sq * (HQ // H)
    BM = min(by_dtype(config, "BM", q.dtype), padded(group))
    parts = (o_parts, lse_parts) if N > 1 else (o, lse)
    k, v = (x if scale is None else as_bytes(x) for x, scale in zip((k, v), scales))
    split = Launch(
        flash_decode_kernel,
        grid=(N * B * H * ceil_div(group, BM),),
        args=dict(
            q=q, q_rope=ropes[0], k=k, k_rope=ropes[1], v=v, k_scale=scales[0], v_scale=scales[1], table=table,
            first=first, end=end, own=own, sinks=sinks, slopes=slopes, o=parts[0], lse=parts[1], scale=scale,
            softcap=float(softcap), Sq=Sq, Sk=Sk, **pages(table, PAGE), SHARE=SHARE, ROWS=ROWS, H=H, HQ=HQ, NB=B,
            splits=N,
        ),
        constexprs=dict(
            D=D, DR=DR, DV=DV, BD=whole(D, q.dtype), BR=whole(max(DR, 1), q.dtype), BV=whole(DV, q.dtype), BM=BM,
            BN=by_dtype(config, "BN", q.dtype), ONE=N == 1, CAPPED=bool(softcap), SAME=v is None,
            ALIKE=(HQ // H) % BM == 0, POWER=power_of_two(PAGE), PRECISION=precision(q.dtype),
        ),
        num_warps=by_dtype(config, "num_warps", q.dtype),
        num_stages=by_dtype(config, "num_stages", q.dtype),
    )  # fmt: skip
    return [split] if N == 1 else [split, combine(o_parts, lse_parts, sinks, o, lse, N)]


def pages(table, PAGE):
    """Numbers about pages of PAGE rows. table: [B, NP], or None."""
    return dict(NP=0 if table is None else table.shape[1], PAGE=PAGE, BITS=PAGE.bit_length() - 1)


def power_of_two(size):
    return size & (size - 1) == 0


def latent_launches(
    q, q_rope, c, k_rope, table, first, end, o, lse, o_parts, lse_parts, Sk, PAGE, scale, config, SHARE=None, ROWS=None,
):  # fmt: skip
    """c, k_rope [B, Sk, *], or [PAGES, PAGE, *] with the pages of each sequence in table."""
    split, *rest = decode_launches(
        q, c[:, :, None], None, table, first, end, None, None, None, o, lse, o_parts, lse_parts, Sk, PAGE, scale, 0,
        config, ropes=(q_rope, k_rope), SHARE=SHARE, ROWS=ROWS,
    )  # fmt: skip
    return [on_hopper(split) if by_dtype(config, "gluon", q.dtype) else split, *rest]


def on_hopper(split):
    """The same by the kernel that is written for it, each of whose programs has 64 heads of one query."""
    from ..kernels.latent_decode_sm90 import latent_decode_sm90_kernel

    args = {name: split.args[name] for name in LATENT}
    programs = args["NB"] * args["Sq"] * ceil_div(args["HQ"], 64)
    EACH = 2 ** (max(1, programs * args["splits"] // FULL).bit_length() - 1)
    return replace(
        split,
        kernel=latent_decode_sm90_kernel,
        grid=(programs * ceil_div(args["splits"], EACH),),
        args=dict(**args, c=split.args["k"], EACH=EACH),
        constexprs={name: split.constexprs[name] for name in ("D", "DR", "POWER")},
    )


LATENT = (
    "q", "q_rope", "k_rope", "table", "first", "end", "o", "lse", "scale", "Sq", "Sk", "NP", "PAGE", "BITS", "SHARE",
    "ROWS", "HQ", "NB", "splits",
)  # fmt: skip
"""Arguments of flash_decode's kernel that the one for Hopper takes as they are."""
FULL = 2 * PROGRAMS
"""From twice as many programs on each makes several splits, one after another. Each starts anew, so that its bits are
the same."""


def combine(o_parts, lse_parts, sinks, o, lse, splits):
    from ..kernels.flash_decode import combine_splits_kernel

    _, B, Sq, HQ, DV = o_parts.shape
    BV = padded(DV)
    BR = max(1, 512 // BV)  # for one warp, which hands weights of splits around without a barrier
    return Launch(
        combine_splits_kernel,
        grid=(ceil_div(B * Sq * HQ, BR),),
        args=dict(
            o_parts=o_parts, lse_parts=lse_parts, sinks=sinks, o=o, lse=lse, rows=B * Sq * HQ, HQ=HQ, splits=splits,
        ),
        constexprs=dict(DV=DV, BV=BV, BR=BR, BS=padded(splits)),
        num_warps=1,
        num_stages=1,
    )  # fmt: skip
