"""Which keys each query sees: from the first to before the end.

    own_i = i + n - after - Sq   the last query stands at the last key; n = Sk, or the sequence's number in lengths
    end_i = n, or with causal the larger of own_i + 1 and prefix_lm, within 0 .. n
    first_i = 0, or with window own_i - window + 1, within 0 .. n

All that is asked for holds at once: a window limits what a causal query sees, and a prefix of prefix_lm keys is seen
by every query that its window lets see it. causal is 1 or 0; window and prefix_lm count keys, 0 for none. after: the
queries that follow these elsewhere, on other ranks.
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
LIMITS = ("causal * (causal - 1) == 0", "window >= 0", "window < 2 ** 31", "prefix_lm >= 0", "prefix_lm < 2 ** 31")

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ D", doc="for its shape"),
        "k": Port("B Sk H D", doc="for its shape"),
        "lengths": Port("B", INT, unit="count/keys", where="row_count(Sk)", optional=True),
    },
    outputs=SPANS,
    params={**PARAMS, "after": 0},
    requires=LIMITS,
    flops="4 * B * Sq",
)
GATHERED = "Sk"


def reference(q, k, lengths, *, causal, window, prefix_lm, after=0):
    """q [B, Sq, HQ, D], k [B, Sk, H, D], lengths [B]; all that comes out [B, Sq]."""
    (B, Sq), Sk = q.shape[:2], k.shape[1]
    n = torch.full((B,), Sk, device=q.device) if lengths is None else lengths.long().clamp(max=Sk)
    own = torch.arange(Sq, device=q.device) + n[:, None] - after - Sq
    first, end = limits(own, own * 0, causal, window, prefix_lm, n[:, None].expand(B, Sq))
    return {"first": first.int(), "end": end.int(), "own": own.int()}


def limits(own, start, causal, window, prefix_lm, stop):
    """(first, end) of queries whose sequence has the keys from start to before stop."""
    first, end = start, stop
    if causal:
        end = torch.maximum(own + 1, start + ceil(prefix_lm))
    if window:
        first = own - ceil(window) + 1
    return torch.minimum(torch.maximum(first, start), stop), torch.minimum(torch.maximum(end, start), stop)


def configs(axes, device):
    return [{"BM": 256, "num_warps": 4, "num_stages": 1}]


def launch(q, k, lengths, first, end, own, *, causal, window, prefix_lm, seqs, config, after=0):
    from ..kernels.key_span import key_span_kernel

    (B, Sq), Sk = q.shape[:2], k.shape[1]
    args = dict(lengths=lengths, after=int(after), Sq=Sq, Sk=Sk)
    return [span_launch(key_span_kernel, args, B, Sq, first, end, own, causal, window, prefix_lm, config)]


def span_launch(kernel, args, B, Sq, first, end, own, causal, window, prefix_lm, config):
    """A kernel over the queries, BM at a time."""
    return Launch(
        kernel,
        grid=(B * ceil_div(Sq, config["BM"]),),
        args=dict(**args, first=first, end=end, own=own, window=ceil(window), prefix_lm=ceil(prefix_lm)),
        constexprs=dict(CAUSAL=bool(causal), WINDOW=bool(window), BM=config["BM"]),
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


LAUNCHERS = [Launcher("triton", launch, configs)]
