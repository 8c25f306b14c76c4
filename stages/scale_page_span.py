"""page_span where the keys' scales say how long a page is."""

from . import page_span
from ._contract import Contract, Launcher, Port
from ._eight_bits import SCALE

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ D", doc="for its shape"),
        "scale": SCALE,
        "pages": page_span.CONTRACT.inputs["pages"],
        "lengths": page_span.CONTRACT.inputs["lengths"],
    },
    outputs=page_span.SPANS,
    params=page_span.PARAMS,
    flops="4 * B * Sq",
)


def reference(q, scale, pages, lengths, *, causal, window, prefix_lm):
    """q [B, Sq, HQ, D], scale [PAGES, PAGE, H], pages [B, NP], lengths [B]; all that comes out [B, Sq]."""
    return page_span.reference(q, scale, pages, lengths, causal=causal, window=window, prefix_lm=prefix_lm)


def launch(q, scale, pages, lengths, first, end, own, *, causal, window, prefix_lm, seqs, config):
    given = dict(causal=causal, window=window, prefix_lm=prefix_lm)
    return page_span.launch(q, scale, pages, lengths, first, end, own, **given, seqs=seqs, config=config)


LAUNCHERS = [Launcher("triton", launch, page_span.configs)]
