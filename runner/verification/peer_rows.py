"""Other implementations on the very tensors that ours was given, held against the same truth and the same budgets.

They are no part of the verdict: a peer that is not here, does not serve the call, fails or is out of budget is a row
that says so.
"""

from collections.abc import Callable, Iterator, Mapping

import torch

from ..benching.case import Case, InputSet
from ..benching.peers import FAILURES, Inapplicable, find_peer, first_line
from ..benching.whole_op import run_once
from .result import PeerRow, Row
from .staged import Subject

Judge = Callable[[str, torch.Tensor], Row]
"""A result's name and the tensor -> how far it is off. Raises ChunkwiseError for one of another shape."""


def peer_rows(name: str, whole: Subject, truth: Mapping[str, torch.Tensor], judged: Judge) -> Iterator[PeerRow]:
    """One row for each result of the truth; a single one where the peer gives none. whole: the call on all heads."""
    ran = ""
    try:
        peer = find_peer(name, case_of(whole), timed=False)
        ran = peer.implementation
        got = run_once(peer.forward, given_of(whole))
        yield from (compared(name, ran, value, whole, got, judged) for value in truth)
    except Inapplicable as reason:
        yield PeerRow(name, ran, "", None, "", str(reason), "does not apply")
    except FAILURES as error:
        yield PeerRow(name, ran, "", None, "", first_line(error), "failed")


def compared(name: str, ran: str, value: str, whole: Subject, got: Mapping, judged: Judge) -> PeerRow:
    left_out = [output for output in whole.graph.cotangents if got.get(output) is None]
    if got.get(value) is None:
        return PeerRow(name, ran, value, None, "", f"it gives no {value}", "not given")
    if value not in whole.call.wanted and left_out:
        why = f"gradients come in through {', '.join(left_out)} too, which it does not give: --without "
        return PeerRow(name, ran, value, None, "", why + ",".join(left_out), "not comparable")
    row = judged(value, got[value].detach())
    return PeerRow(name, ran, value, row.verdict, row.against, row.why, row.word)


def case_of(whole: Subject) -> Case:
    call = whole.call
    absent = [name for name, x in whole.inputs.items() if x is None]
    absent += [name for name in call.op.spec.outputs if name not in call.wanted]
    lengths = call.packing.on_host() if call.packing else None
    backward = bool(whole.graph.gradients)
    return Case(
        call.op, None, call.sizes, frozenset(), lengths, call.io, call.device, backward, absent=tuple(absent)
    )


def given_of(whole: Subject) -> InputSet:
    """Leaves of their own: what was verified keeps no gradient of a peer."""
    graph, trainable = whole.graph, tuple(whole.graph.gradients)
    leaves = {
        name: x.detach().clone().requires_grad_(name in trainable) if x is not None else None
        for name, x in whole.inputs.items()
    }
    if not trainable:
        return InputSet(whole.call, leaves)
    cotangents = {output: whole.cotangents[value] for output, value in graph.cotangents.items()}
    return InputSet(whole.call, leaves, trainable, cotangents)
