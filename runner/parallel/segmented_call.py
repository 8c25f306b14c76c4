"""A call in segments, as all calls of its signature run it: each segment's call, checked once, and where it lies.

A segment is a call of the op on its rows (call.Call), from the state that the one before it left. Its rows are written
where they belong in the whole outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..calling.call import Call, Tensors
from ..planning.least_recent import LeastRecent
from ..planning.plan import Buffer, buffer_of
from .cut import Cut
from .segment_states import States

Run = Callable[[int, Tensors, Tensors], Tensors]
"""(which segment, its inputs, places for its outputs) -> its results by name."""


@dataclass(frozen=True)
class Layout:
    """inputs, outputs: the place of T among each one's axes, None where it has none. initial, final: the input and the
    output that are the state."""

    inputs: Mapping[str, int | None]
    outputs: Mapping[str, int | None]
    initial: str
    final: str


@dataclass(frozen=True)
class Segment:
    """call: the op on its rows, without tensors."""

    cut: Cut
    call: Call


class SegmentedCall:
    """whole: the call, without tensors. rows: of each segment but the last. segments: first to last. inputs, outputs:
    buffers for the rows of all segments, of what has rows. trainings: what autograd asked for."""

    def __init__(self, whole: Call, numbers: Mapping[str, float], cuts: Sequence[Cut], rows: int, layout: Layout):
        """whole: with its tensors. numbers: those that it was given."""
        self.whole, self.rows, self.layout, self.cuts = whole.detached(), rows, layout, tuple(cuts)
        given = self.cut_up(whole.tensors, layout.inputs)
        self.segments = tuple([Segment(cut, self.bound(cut, x, whole, numbers)) for cut, x in zip(cuts, given)])
        values, wanted = whole.graph.values, whole.wanted.items()
        inputs = {name: values[name] for name, x in whole.tensors.items() if x is not None}
        self.inputs = self.buffers(inputs, layout.inputs)
        self.outputs = self.buffers({name: values[value] for name, value in wanted}, layout.outputs)
        self.trainings = LeastRecent(8)

    def bound(self, cut: Cut, given: Tensors, whole: Call, numbers: Mapping[str, float]) -> Call:
        """The op on a segment's rows, checked, with a state that has no memory in place of the one to come."""
        initial, final = self.layout.initial, self.layout.final
        names = [name for name in whole.wanted if name != final]
        if not all(cut.ends) or final in whole.wanted:
            names.append(final)
        state = None
        if whole.tensors[initial] is not None or not all(cut.begins):
            buffer = buffer_of(whole.graph.inputs[initial], {**whole.sizes, "N": len(cut.of)}, whole.io)
            state = torch.empty((), dtype=buffer.dtype, device=whole.device).expand(buffer.shape)
        return whole.op.bind({**given, initial: state, **numbers}, None, cut.lengths, names).detached()

    def buffers(self, values: Mapping, axes: Mapping[str, int | None]) -> dict[str, Buffer]:
        return {
            name: buffer_of(value, self.whole.sizes, self.whole.io)
            for name, value in values.items() if axes[name] is not None
        }  # fmt: skip

    def all_rows(self, buffers: Mapping[str, Buffer]) -> Tensors:
        device = self.whole.device
        return {name: torch.empty(each.shape, dtype=each.dtype, device=device) for name, each in buffers.items()}

    def cut_up(self, tensors: Tensors, axes: Mapping[str, int | None]) -> list[Tensors]:
        """For each segment its rows of the tensors, and what has no rows as it is. Only kernels read and write them, so
        that autograd need not know them for views, which takes it half of the time."""
        found = [dict(tensors) for _ in self.cuts]
        for name, x in tensors.items():
            if x is not None and axes[name] is not None:
                for each, rows in zip(found, torch.unsafe_split(x, self.rows, axes[name]), strict=True):
                    each[name] = rows
        return found

    def forward(self, tensors: Tensors, run: Run | None = None) -> Tensors:
        """Results by output. tensors: those of the whole call. run: in place of each segment's own forward pass."""
        initial, final, run = self.layout.initial, self.layout.final, run or self.run
        results, states = self.all_rows(self.outputs), States(tensors[initial])
        each = zip(self.segments, self.cut_up(tensors, self.layout.inputs), self.cut_up(results, self.layout.outputs))
        for at, (segment, given, places) in enumerate(each):
            found = run(at, {**given, initial: states.entering(segment.cut)}, places)
            fill(places, found)
            if final in segment.call.wanted:
                states.leave(segment.cut, found[final])
        if final in self.whole.wanted:
            results[final] = states.final()
        return results

    def run(self, at: int, given: Tensors, places: Tensors) -> Tensors:
        return self.segments[at].call.run_forward(given, into=places)


def fill(places: Tensors, found: Tensors) -> None:
    """What was not written there already; what was not found is 0."""
    for name, place in places.items():
        x = found.get(name)
        if x is None:
            place.zero_()
        elif x is not place:
            place.copy_(x)
