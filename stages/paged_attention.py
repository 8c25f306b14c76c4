"""split_attention over keys and values in pages of a shared cache.

Key j of sequence b is row j % PAGE of page pages[b, j // PAGE]. Pages may be shared, and the last one half full; pages
that hold none of the keys seen are never read.
"""

from dataclasses import replace

import torch

from . import flash_fwd, split_attention
from ._contract import INT, Launcher, Port
from ._decode import SCRATCH, decode_configs, decode_launches
from ._flash import flash_limits

CONTRACT = replace(
    split_attention.CONTRACT,
    inputs={
        "q": Port("B Sq HQ D"),
        "k": Port("PAGES PAGE H D"),
        "v": Port("PAGES PAGE H DV"),
        "pages": Port("B NP", INT, unit="index/page", where="row_of(PAGES)"),
        **{name: port for name, port in split_attention.CONTRACT.inputs.items() if name not in ("q", "k", "v")},
    },
    flops="2 * B * Sq * NP * PAGE * HQ * (D + DV)",
)


def reference(q, k, v, pages, first, end, own, sinks, slopes, *, scale, softcap):
    """q [B, Sq, HQ, D], k [PAGES, PAGE, H, D], v [PAGES, PAGE, H, DV], pages [B, NP], first, end, own [B, Sq]."""
    where = page_order(pages, end, k.shape[1])
    k, v = (in_order(x, where) for x in (k, v))
    return flash_fwd.reference(q, k, v, first, end, own, sinks, slopes, scale=scale, softcap=softcap)


def vjp(d_o, d_lse, q, k, v, pages, first, end, own, sinks, slopes, o, lse, *, needs, scale, softcap):
    """flash_fwd's; a page takes from every sequence that has it."""
    where = page_order(pages, end, k.shape[1])
    ordered = (in_order(x, where) for x in (k, v))
    grads = flash_fwd.vjp(
        d_o, d_lse, q, *ordered, first, end, own, sinks, slopes, o=o, lse=lse, needs=needs, scale=scale, softcap=softcap
    )
    caches = {"k": k, "v": v}
    return {name: by_page(x, where, caches[name]) if name in caches else x for name, x in grads.items()}


def by_page(x, where, cache):
    """The sums [PAGES, PAGE, ...] of what rows [B, NP PAGE, ...] in order of ``where`` give each page of a cache."""
    if not len(cache):
        return torch.zeros_like(cache)
    parts = x.unflatten(1, (where.shape[1], cache.shape[1])).flatten(0, 1)
    return torch.zeros_like(cache).index_add(0, where.flatten(), parts)


def page_order(pages, end, size):
    """The pages of each sequence; page 0 stands for those past the last key that is seen."""
    most = end.amax(1, keepdim=True) if end.shape[1] else end.new_zeros(len(end), 1)
    return torch.where(torch.arange(pages.shape[1], device=pages.device) * size < most, pages.long(), 0)


def in_order(x, where):
    """[B, NP PAGE, ...] of a cache [PAGES, PAGE, ...]."""
    return x[where].flatten(1, 2) if len(x) else x.new_zeros(len(where), 0, *x.shape[2:])


def configs(axes, device):
    return decode_configs(axes["NP"] * axes["PAGE"], axes, (axes["D"], 0, axes["DV"]), device)


def launch(
    q, k, v, pages, first, end, own, sinks, slopes, o, lse, o_parts, lse_parts, *, scale, softcap, seqs, config
):  # fmt: skip
    size = k.shape[1]
    return decode_launches(
        q, k, v, pages, first, end, own, sinks, slopes, o, lse, o_parts, lse_parts, pages.shape[1] * size, size, scale,
        softcap, config,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, flash_limits, SCRATCH)]
