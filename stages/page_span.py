"""Which keys each query sees where a sequence's keys lie in pages: as key_span, with the number of keys from lengths.

A sequence has at most as many keys as its row of the page table holds.
"""

import torch

from ._contract import INT, Contract, Launcher, Port
from .key_span import LIMITS, PARAMS, SPANS, configs, limits, span_launch

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ D", doc="for its shape"),
        "k": Port("PAGES PAGE H D", doc="for its shape"),
        "pages": Port("B NP", INT, unit="index/page", where="row_of(PAGES)", doc="for its shape"),
        "lengths": Port("B", INT, unit="count/keys", where="row_count(NP PAGE)"),
    },
    outputs=SPANS,
    params=PARAMS,
    requires=LIMITS,
    flops="4 * B * Sq",
)


def reference(q, k, pages, lengths, *, causal, window, prefix_lm):
    """q [B, Sq, HQ, D], k [PAGES, PAGE, H, D], pages [B, NP], lengths [B]; all that comes out [B, Sq]."""
    B, Sq = q.shape[:2]
    n = lengths.long().clamp(max=pages.shape[1] * k.shape[1])[:, None]
    own = torch.arange(Sq, device=q.device) + n - Sq
    first, end = limits(own, own * 0, causal, window, prefix_lm, n.expand(B, Sq))
    return {"first": first.int(), "end": end.int(), "own": own.int()}


def launch(q, k, pages, lengths, first, end, own, *, causal, window, prefix_lm, seqs, config):
    from ..kernels.key_span import key_span_kernel

    B, Sq = q.shape[:2]
    args = dict(lengths=lengths, after=0, Sq=Sq, Sk=pages.shape[1] * k.shape[1])
    return [span_launch(key_span_kernel, args, B, Sq, first, end, own, causal, window, prefix_lm, config)]


LAUNCHERS = [Launcher("triton", launch, configs)]
