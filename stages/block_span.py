"""Which tokens and which blocks of M tokens each query sees: those of a window, and the blocks before its own one.

    own_i = i + n - Sq        the last query stands at the last token; n = NB M, or the sequence's number in lengths
    end_i = own_i + 1, first_i = own_i - window + 1, both within 0 .. n
    blocks_i = own_i // M     or 0 where a query stands before the first token
"""

from math import ceil

import torch

from ._contract import INT, Contract, Launch, Launcher, Port, ceil_div
from .key_span import SPANS, configs

CONTRACT = Contract(
    inputs={
        "q": Port("B Sq GO HG DC", doc="for its shape"),
        "kv": Port("B NB M DC", doc="for its shape"),
        "lengths": Port("B", INT, unit="count/keys", where="row_count(NB M)", optional=True),
    },
    outputs={"first": SPANS["first"], "end": SPANS["end"], "blocks": SPANS["end"]},
    params={"window": None},
    flops="4 * B * Sq",
)


def reference(q, kv, lengths, *, window):
    """q [B, Sq, GO, HG, DC], kv [B, NB, M, DC], lengths [B]; all that comes out [B, Sq]."""
    (B, Sq), (NB, M) = q.shape[:2], kv.shape[1:3]
    n = torch.full((B,), NB * M, device=q.device) if lengths is None else lengths.long().clamp(max=NB * M)
    own = (torch.arange(Sq, device=q.device) + n[:, None] - Sq).clamp(min=-1)
    first = (own - ceil(window) + 1).clamp(min=0)
    return {"first": first.int(), "end": (own + 1).int(), "blocks": (own.clamp(min=0) // max(M, 1)).int()}


def launch(q, kv, lengths, first, end, blocks, *, window, seqs, config):
    from ..kernels.block_span import block_span_kernel

    (B, Sq), (NB, M) = q.shape[:2], kv.shape[1:3]
    return [
        Launch(
            block_span_kernel,
            grid=(B * ceil_div(Sq, config["BM"]),),
            args=dict(
                lengths=lengths, first=first, end=end, blocks=blocks, window=ceil(window), M=M, Sq=Sq, Sk=NB * M
            ),
            constexprs=dict(BM=config["BM"]),
            num_warps=config["num_warps"],
            num_stages=config["num_stages"],
        )
    ]


LAUNCHERS = [Launcher("triton", launch, configs)]
