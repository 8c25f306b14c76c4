"""Which keys each query sees where sequences lie one after another: those of its own sequence, and of them as key_span.

q_ends and k_ends say where each sequence ends among the queries and among the keys (cu_seqlens without its first 0).
The last query of a sequence stands at its last key; a query past the last sequence sees no key. Of each query also the
number of its sequence, of all batches, and that sequence's first key. before: queries that precede these elsewhere, on
other ranks; q_ends counts them too.
"""

import torch

from ._contract import INT, Contract, Launcher, Port
from .key_span import LIMITS, PARAMS, SPANS, configs, limits, span_launch

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq HQ D", doc="for its shape"),
        "k": Port("B Sk H D", doc="for its shape"),
        "q_ends": Port("ND", INT, unit="index/row_end", where="row_ends(Sq)"),
        "k_ends": Port("ND", INT, unit="index/row_end", where="row_ends(Sk)"),
    },
    outputs={
        **SPANS,
        "sequence": Port("B Sq", INT, unit="index/sequence", optional=True),
        "start": Port("B Sq", INT, unit="index/first_row", optional=True),
    },
    params={**PARAMS, "before": 0},
    requires=LIMITS,
    flops="4 * B * Sq * ND",
)
GATHERED = "Sk"


def reference(q, k, q_ends, k_ends, *, causal, window, prefix_lm, before=0):
    """q [B, Sq, HQ, D], k [B, Sk, H, D], q_ends, k_ends [ND]; all that comes out [B, Sq]."""
    (B, Sq), Sk = q.shape[:2], k.shape[1]
    i = torch.arange(Sq, device=q.device) + before
    n = (q_ends.long() <= i[:, None]).sum(-1)
    sequence = torch.arange(B, device=q.device)[:, None] * len(q_ends) + n
    there, none = n < len(q_ends), torch.zeros(1, dtype=torch.int64, device=q.device)
    starts, k_ends, q_ends = (
        torch.cat(pair) for pair in ((none, k_ends.long()), (k_ends.long(), none), (q_ends, none))
    )
    start = torch.where(there, starts[n].clamp(max=Sk), Sk)
    stop = torch.where(there, k_ends[n].clamp(max=Sk), Sk)
    own = i + k_ends[n] - q_ends[n]
    first, end = limits(own, start, causal, window, prefix_lm, stop)
    found = {"first": first, "end": end, "own": own, "sequence": sequence, "start": start}
    return {name: x.int().expand(B, Sq) for name, x in found.items()}


def launch(q, k, q_ends, k_ends, first, end, own, sequence, start, *, causal, window, prefix_lm, before, seqs, config):
    from ..kernels.key_span import document_span_kernel

    (B, Sq), Sk = q.shape[:2], k.shape[1]
    args = dict(q_ends=q_ends, k_ends=k_ends, sequence=sequence, start=start, before=int(before), Sq=Sq, Sk=Sk)
    args["N"] = q_ends.shape[0]
    return [span_launch(document_span_kernel, args, B, Sq, first, end, own, causal, window, prefix_lm, config)]


LAUNCHERS = [Launcher("triton", launch, configs)]
