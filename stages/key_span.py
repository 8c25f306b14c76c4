"""Which keys each query sees: from the first to before the end.

    own_i = i + Sk - Sq          the last query stands at the last key
    end_i = Sk, or with causal the larger of own_i + 1 and prefix_lm, within 0 .. Sk
    first_i = 0, or with window the larger of own_i - window + 1 and 0

All that is asked for holds at once: a window limits what a causal query sees, and a prefix of prefix_lm keys is seen
by every query that its window lets see it. causal is 1 or 0; window and prefix_lm count keys, 0 for none.
"""

from math import ceil

import torch

from ._contract import INT, Contract, Launch, Launcher, Port, ceil_div

SPANS = {
    "first": Port("B Sq", INT, unit="index/first_key"),
    "end": Port("B Sq", INT, unit="index/end_key"),
    "own": Port("B Sq", INT, unit="index/own_key", optional=True),
}
PARAMS = {"causal": 1, "window": 0, "prefix_lm": 0}

CONTRACT = Contract(
    inputs={"q": Port("B Sq HQ D", doc="for its shape"), "k": Port("B Sk H D", doc="for its shape")},
    outputs=SPANS,
    params=PARAMS,
    flops="4 * B * Sq",
)


def reference(q, k, *, causal, window, prefix_lm):
    """q [B, Sq, HQ, D], k [B, Sk, H, D]; all that comes out [B, Sq]."""
    (B, Sq), Sk = q.shape[:2], k.shape[1]
    own = torch.arange(Sq, device=q.device) + (Sk - Sq)
    first, end = own.clamp(min=0) * 0, own * 0 + Sk
    if causal:
        end = (own + 1).clamp(min=ceil(prefix_lm))
    if window:
        first = own - ceil(window) + 1
    spans = {"first": first.clamp(0, Sk), "end": end.clamp(0, Sk), "own": own}
    return {name: x.int().expand(B, Sq) for name, x in spans.items()}


def configs(axes, device):
    return [{"BM": 256, "num_warps": 4, "num_stages": 1}]


def launch(q, k, first, end, own, *, causal, window, prefix_lm, seqs, config):
    from ..kernels.key_span import key_span_kernel

    (B, Sq), Sk = q.shape[:2], k.shape[1]
    return [
        Launch(
            key_span_kernel,
            grid=(B * ceil_div(Sq, config["BM"]),),
            args=dict(
                first=first, end=end, own=own, window=ceil(window), prefix_lm=ceil(prefix_lm), Sq=Sq,
                Sk=Sk,
            ),
            constexprs=dict(CAUSAL=bool(causal), WINDOW=bool(window), BM=config["BM"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


LAUNCHERS = [Launcher("triton", launch, configs)]
