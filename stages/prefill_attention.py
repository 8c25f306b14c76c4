"""paged_attention for many queries: the keys of a tile are read once for 128 rows of queries, and not split."""

from . import paged_attention
from ._contract import Launcher
from ._decode import decode_launches, prefill_configs
from ._flash import flash_limits

CONTRACT = paged_attention.CONTRACT


def reference(q, k, v, pages, first, end, own, sinks, slopes, *, scale, softcap):
    """q [B, Sq, HQ, D], k [PAGES, PAGE, H, D], v [PAGES, PAGE, H, DV], pages [B, NP], first, end, own [B, Sq]."""
    return paged_attention.reference(q, k, v, pages, first, end, own, sinks, slopes, scale=scale, softcap=softcap)


def vjp(d_o, d_lse, q, k, v, pages, first, end, own, sinks, slopes, o, lse, *, needs, scale, softcap):
    """paged_attention's."""
    return paged_attention.vjp(
        d_o, d_lse, q, k, v, pages, first, end, own, sinks, slopes, o, lse, needs=needs, scale=scale, softcap=softcap
    )


def configs(axes, device):
    return prefill_configs((axes["D"], 0, axes["DV"]), device)


def launch(q, k, v, pages, first, end, own, sinks, slopes, o, lse, *, scale, softcap, seqs, config):
    size = k.shape[1]
    return decode_launches(
        q, k, v, pages, first, end, own, sinks, slopes, o, lse, None, None, pages.shape[1] * size, size, scale, softcap,
        config,
    )  # fmt: skip


LAUNCHERS = [Launcher("triton", launch, configs, flash_limits)]
