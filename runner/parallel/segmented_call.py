"""A call in segments, as all calls of its signature run it: each segment's call, checked once, and where it lies.

A segment is a call of the op on its rows (call.Call), from the state that the one before it left. Its rows are written
where they belong in the whole outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..calling.call import Call, Tensors
from ..graphs.graph import Value
from ..launching.program import maker
from ..planning.execute import on_device
from ..planning.least_recent import LeastRecent
from ..planning.plan import buffer_of
from .cut import Cut
from .rows import Rows, Whole, rows_in, rows_of
from .segment_states import BatchStates, States

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
    """inputs, outputs: its rows, of what has rows. call: the op on them, without tensors."""

    cut: Cut
    inputs: Mapping[str, Rows]
    outputs: Mapping[str, Rows]
    call: Call


class SegmentedCall:
    """whole: the call, without tensors. inputs, outputs: what has rows, with all of them. segments: first to last.
    trainings: what autograd asked for."""

    def __init__(self, whole: Call, numbers: Mapping[str, float], cuts: Sequence[Cut], rows: int, layout: Layout):
        """whole: with its tensors. numbers: those that it was given. rows: of each segment but the last."""
        self.whole, self.layout, self.trainings = whole.detached(), layout, LeastRecent(8)
        self.make = maker(whole.device)
        values, wanted = whole.graph.values, whole.wanted.items()
        inputs = {name: values[name] for name, x in whole.tensors.items() if x is not None}
        self.inputs = self.wholes(inputs, layout.inputs)
        self.outputs = self.wholes({name: values[value] for name, value in wanted}, layout.outputs)
        self.segments = tuple([self.segment(cut, at * rows, rows, whole, numbers) for at, cut in enumerate(cuts)])

    def segment(self, cut: Cut, first: int, rows: int, whole: Call, numbers: Mapping[str, float]) -> Segment:
        inputs = rows_of(self.inputs, self.layout.inputs, first, rows)
        outputs = rows_of(self.outputs, self.layout.outputs, first, rows)
        call = self.bound(cut, rows_in(whole.tensors, inputs), whole, numbers)
        return Segment(cut, inputs, outputs, call)

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

    def wholes(self, values: Mapping[str, Value], axes: Mapping[str, int | None]) -> dict[str, Whole]:
        buffers = {name: buffer_of(value, self.whole.sizes, self.whole.io) for name, value in values.items()}
        strides = {name: torch.empty(each.shape, device="meta").stride() for name, each in buffers.items()}
        return {
            name: Whole(each.shape, strides[name], each.dtype)
            for name, each in buffers.items() if axes[name] is not None
        }  # fmt: skip

    def made(self, wholes: Mapping[str, Whole]) -> Tensors:
        with on_device(self.whole.device):
            return {name: self.make(*each) for name, each in wholes.items()}

    def forward(self, tensors: Tensors, run: Run | None = None) -> Tensors:
        """Results by output. tensors: those of the whole call. run: in place of each segment's own forward pass."""
        initial, final, run = self.layout.initial, self.layout.final, run or self.run
        states = (States if self.whole.packing else BatchStates)(tensors[initial])
        results = self.made(self.outputs)
        for at, segment in enumerate(self.segments):
            given = rows_in(tensors, segment.inputs) | {initial: states.entering(segment.cut)}
            places = {name: rows.place_in(results[name]) for name, rows in segment.outputs.items()}
            found = run(at, given, places)
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
