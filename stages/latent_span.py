"""key_span where all heads share one latent."""

from . import key_span
from ._contract import Contract, Launcher, Port

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ DN", doc="for its shape"),
        "c": Port("B Sk DC", doc="for its shape"),
        "lengths": key_span.CONTRACT.inputs["lengths"],
    },
    outputs=key_span.SPANS,
    params=key_span.PARAMS,
    requires=key_span.LIMITS,
    flops="4 * B * Sq",
)


def reference(q, c, lengths, *, causal, window, prefix_lm):
    """q [B, Sq, HQ, DN], c [B, Sk, DC], lengths [B]; all that comes out [B, Sq]."""
    return key_span.reference(q, c, lengths, causal=causal, window=window, prefix_lm=prefix_lm)


def launch(q, c, lengths, first, end, own, *, causal, window, prefix_lm, seqs, config):
    given = dict(causal=causal, window=window, prefix_lm=prefix_lm)
    return key_span.launch(q, c, lengths, first, end, own, **given, seqs=seqs, config=config)


LAUNCHERS = [Launcher("triton", launch, key_span.configs)]
