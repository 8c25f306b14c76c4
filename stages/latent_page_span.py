"""page_span where all heads share one latent."""

from . import page_span
from ._contract import Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ DN", doc="for its shape"),
        "c": Port("PAGES PAGE DC", doc="for its shape"),
        "pages": page_span.CONTRACT.inputs["pages"],
        "lengths": page_span.CONTRACT.inputs["lengths"],
    },
    outputs=page_span.SPANS,
    params=page_span.PARAMS,
    requires=page_span.LIMITS,
    flops="4 * B * Sq",
)


def reference(q, c, pages, lengths, *, causal, window, prefix_lm):
    """q [B, Sq, HQ, DN], c [PAGES, PAGE, DC], pages [B, NP], lengths [B]; all that comes out [B, Sq]."""
    return page_span.reference(q, c, pages, lengths, causal=causal, window=window, prefix_lm=prefix_lm)


def launch(q, c, pages, lengths, first, end, own, *, causal, window, prefix_lm, seqs, config):
    given = dict(causal=causal, window=window, prefix_lm=prefix_lm)
    return page_span.launch(q, c, pages, lengths, first, end, own, **given, seqs=seqs, config=config)


LAUNCHERS = [Launcher("triton", launch, page_span.configs)]
