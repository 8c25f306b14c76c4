"""Gradient of the queries of softmax attention: of each tile of queries, over the keys that it sees.

dq = scale ds k, with ds as in flash_bwd_dkdv
"""

from . import flash_fwd
from ._attention import seen, sum_over_keys
from ._contract import Contract, Launcher, Port
from ._dropout import dropout_args
from ._flash import by_queries, flash_limits, query_configs, widths
from .flash_bwd_dkdv import GIVEN

CONTRACT = Contract(
    inputs=GIVEN,
    outputs={"d_q": Port("B Sq HQ D")},
    params=flash_fwd.CONTRACT.params,
    requires=flash_fwd.CONTRACT.requires,
    flops="2 * B * Sq * Sk * HQ * (2 * D + DV)",
)


def reference(
    d_o, q, k, v, first, end, own, slopes, sequence, start, lse, delta, *, scale, softcap, dropout, seed, first_batch
):  # fmt: skip
    """d_o [B, Sq, HQ, DV], q [B, Sq, HQ, D], k [B, Sk, H, D], v [B, Sk, H, DV], lse, delta [B, Sq, HQ], slopes [HQ]."""
    _, ds, _ = flash_fwd.pairs(
        d_o, q, k, v, first, end, own, slopes, sequence, start, lse, delta, scale=scale, softcap=softcap,
        dropout=dropout, seed=seed, first_batch=first_batch,
    )  # fmt: skip
    return {"d_q": scale * sum_over_keys(ds, seen(first, end, k.shape[1]), k).flatten(2, 3)}


def launch(
    d_o, q, k, v, first, end, own, slopes, sequence, start, lse, delta, d_q, *, scale, softcap, dropout, seed,
    first_batch, seqs, config,
):  # fmt: skip
    shared = dict(
        q=q, k=k, v=v, first=first, end=end, own=own, slopes=slopes, sequence=sequence, start=start, d_o=d_o, lse=lse,
        delta=delta, scale=scale, softcap=float(softcap), **dropout_args(dropout, seed, first_batch),
    )  # fmt: skip
    return [by_queries(shared, widths(q, v, softcap, dropout), d_q, config)]


LAUNCHERS = [Launcher("triton", launch, query_configs, flash_limits)]
