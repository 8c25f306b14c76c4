"""Gradients of the keys and values of softmax attention: of each tile of keys, over the queries that see it.

    p = exp(s - lse)    dv = p^T do    ds = p (do v^T - delta)    dk = scale ds^T q

with ds times 1 - tanh^2 under a softcap, and under dropout in p and do v^T only what is kept, as it counts.
"""

import torch

from . import flash_fwd
from ._attention import grouped
from ._contract import F32, INT, Contract, Launcher, Port
from ._dropout import dropout_args
from ._flash import (
    by_hopper,
    by_keys,
    by_keys_on_hopper,
    flash_limits,
    key_configs,
    query_rows,
    query_span,
    query_words,
    widths,
)
from .flash_bwd_preprocess import D_O

GIVEN = {
    "d_o": D_O,
    **{name: port for name, port in flash_fwd.CONTRACT.inputs.items() if name != "sinks"},
    "lse": flash_fwd.CONTRACT.outputs["lse"],
    "delta": Port("B Sq HQ", F32, doc="<o, do> - d_lse"),
}
CONTRACT = Contract(
    inputs=GIVEN,
    outputs={"d_k": Port("B Sk H D"), "d_v": Port("B Sk H DV")},
    params=flash_fwd.CONTRACT.params,
    requires=flash_fwd.CONTRACT.requires,
    flops="4 * B * Sq * Sk * HQ * (D + DV)",
)

SCRATCH = {
    "words": Port("B HQ Sq 4", F32, doc="lse in powers of two, first, delta, end; or rows of lse, delta"),
    "low": Port("B Sk", INT, doc="the first query that sees each key"),
    "high": Port("B Sk", INT, doc="the end of those"),
}


def reference(
    d_o, q, k, v, first, end, own, slopes, sequence, start, lse, delta, *, scale, softcap, dropout, seed, first_batch
):  # fmt: skip
    """d_o [B, Sq, HQ, DV], q [B, Sq, HQ, D], k [B, Sk, H, D], v [B, Sk, H, DV], lse, delta [B, Sq, HQ], slopes [HQ]."""
    p, ds, _ = flash_fwd.pairs(
        d_o, q, k, v, first, end, own, slopes, sequence, start, lse, delta, scale=scale, softcap=softcap,
        dropout=dropout, seed=seed, first_batch=first_batch,
    )  # fmt: skip
    H = k.shape[2]
    d_v = torch.zeros_like(v) if d_o is None else torch.einsum("bhgij,bihgd->bjhd", p, grouped(d_o, H))
    return {"d_k": scale * torch.einsum("bhgij,bihgd->bjhd", ds, grouped(q, H)), "d_v": d_v}


def launch(
    d_o, q, k, v, first, end, own, slopes, sequence, start, lse, delta, d_k, d_v, words, low, high, *, scale, softcap,
    dropout, seed, first_batch, seqs, config,
):  # fmt: skip
    if by_hopper(config, d_o, q, k, slopes, softcap, dropout):
        weigh = by_keys_on_hopper(q, k, v, low, high, d_o, words, d_k, d_v, scale, config)
        return [query_rows(lse, delta, words), query_span(first, end, low, high), weigh]
    shared = dict(
        q=q, k=k, v=v, first=first, end=end, own=own, slopes=slopes, sequence=sequence, start=start, d_o=d_o,
        words=words, scale=scale, softcap=float(softcap), **dropout_args(dropout, seed, first_batch),
    )  # fmt: skip
    by_query = query_words(first, end, lse, delta, words)
    return [by_query, by_keys(shared, widths(q, v, softcap, dropout), d_k, d_v, config)]


LAUNCHERS = [Launcher("triton", launch, key_configs, flash_limits, SCRATCH)]
