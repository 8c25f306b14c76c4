"""This op itself with gradients, a third of the chunks at a time: what less memory costs."""

from ....stages._contract import ceil_div
from ..case import Case
from ..whole_op import Forward
from . import Inapplicable, Peer

SEGMENTS = 3


def peer(case: Case) -> Peer:
    if not case.backward:
        raise Inapplicable("segments are for the memory of a backward pass: --backward")
    if "C" not in case.sizes:
        raise Inapplicable(f"{case.op.spec.name} has no chunks to keep states of")
    chunks = ceil_div(ceil_div(case.sizes["T"], case.sizes["C"]), SEGMENTS)
    return Peer(f"segments of {chunks} chunks", f"in_segments(chunks={chunks})", in_segments(case, chunks))


def in_segments(case: Case, chunks: int) -> Forward:
    op = case.op.in_segments(chunks=chunks)
    return lambda given: op(**given.inputs, seqlens=case.seqlens, outputs=case.outputs)._asdict()
