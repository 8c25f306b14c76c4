"""A call in segments under autograd: an ``autograd.Function`` around all of them.

Backward they come from the last one on, each with the cotangent that the one behind it gave its last state.
"""

from dataclasses import dataclass

import torch

from ..calling.autograd import refuse_create_graph
from ..calling.call import Tensors
from ..calling.training import Training
from ..calling.transforms import refuse_batched
from .rows import rows_in
from .segment_states import BatchStateGradients, StateGradients
from .segmented_call import Segment, SegmentedCall, fill


@dataclass(frozen=True)
class Part:
    """Both passes of a segment. needed: of its inputs in order, whether their gradients are. shared, own: the names of
    what is kept for the backward pass: inputs that are rows of the whole call's, and what is nobody else's."""

    segment: Segment
    training: Training
    needed: tuple[bool, ...]
    shared: tuple[str, ...]
    own: tuple[str, ...]

    def reaches(self, output: str) -> bool:
        """Whether a gradient comes from it."""
        return output in self.training.call.wanted and output not in self.training.apart

    def gradients(self, kept: Tensors, incoming: Tensors, places: Tensors) -> Tensors:
        """By input. incoming: cotangents by output, None where there is none."""
        there = tuple([incoming.get(name) is not None for name in self.training.call.wanted])
        return self.training.backward(self.needed, there)(kept, incoming, places) if any(there) else {}


class SegmentedTraining:
    """Both passes of a call in segments, for one choice of gradients. parts: first to last."""

    def __init__(self, call: SegmentedCall, names: tuple[str, ...], tensors: Tensors):
        """names: of the inputs whose gradients are wanted. tensors: as any call brings them."""
        self.call, parts = call, []
        for segment in call.segments:
            given = rows_in(tensors, segment.inputs)
            carried = not all(segment.cut.begins) and any([part.reaches(call.layout.final) for part in parts])
            parts.append(part_of(segment, names, given, carried, call.layout.initial))
        self.parts = tuple(parts)
        self.read = tuple(dict.fromkeys([name for part in parts for name in part.shared]))
        self.apart = [name for name in call.whole.wanted if not any([part.reaches(name) for part in parts])]

    def forward(self, tensors: Tensors) -> tuple[Tensors, list[torch.Tensor]]:
        """(results by output, what segments keep of their own, first to last)."""
        kept = []

        def run(at: int, given: Tensors, places: Tensors) -> Tensors:
            part = self.parts[at]
            found = part.training.forward(given, part.training.call.seqs, places)
            kept.extend([given[name] if name in part.training.inputs else found[name] for name in part.own])
            return found

        return self.call.forward(tensors, run), kept

    def backward(self, read: Tensors, own: list[torch.Tensor], incoming: Tensors, names: list[str]) -> Tensors:
        """Gradients of the inputs called names. read: inputs of the whole call that are read again. own: as forward
        gave it. incoming: cotangents by output, the absent ones left out."""
        initial, final = self.call.layout.initial, self.call.layout.final
        states = (StateGradients if self.call.whole.packing else BatchStateGradients)(incoming.get(final))
        rest, sums, seen = iter(own), {}, set()
        rows = self.call.made({name: each for name, each in self.call.inputs.items() if name in names})
        own = [{name: next(rest) for name in part.own} for part in self.parts]
        for part, kept in zip(reversed(self.parts), reversed(own)):
            cut, inputs, outputs = part.segment.cut, part.segment.inputs, part.segment.outputs
            shared, given, places = rows_in(read, inputs), rows_in(incoming, outputs), rows_in(rows, inputs)
            kept |= {name: shared[name] for name in part.shared}
            given[final] = states.leaving(cut)
            found = part.gradients(kept, given, places)
            states.enter(cut, found.get(initial))
            fill(places, found)
            seen.update([name for name, x in found.items() if x is not None])
            for name in names:
                if name not in rows and name in found and name != initial:
                    sums[name] = found[name] + sums[name] if name in sums else found[name]
        found = {name: x for name, x in rows.items() if name in seen} | sums
        return found | ({initial: states.initial(self.call.whole.sizes["N"])} if initial in names else {})


def part_of(segment: Segment, names: tuple[str, ...], given: Tensors, carried: bool, initial: str) -> Part:
    """Beside the gradients of names that of the state that an earlier segment left, if one of names is in it (q is in
    no state): carried."""
    wanted = tuple([name for name in given if name in names or name == initial and carried])
    training, needed = segment.call.training(wanted, given), tuple([name in wanted for name in given])
    shared = tuple([name for name in training.inputs if name != initial])
    own = tuple([name for name in training.kept if name not in shared])
    return Part(segment, training, needed, shared, own)


class InSegments(torch.autograd.Function):
    """Inputs: both passes, the whole call's tensors by name, what the forward pass gave, and the tensors again in their
    order. Outputs: the wanted ones in order. The forward pass ran before, so that a GPU that waits need not wait for
    autograd too."""

    @staticmethod
    def forward(ctx, training: SegmentedTraining, inputs: Tensors, results: Tensors, own: list[torch.Tensor], *tensors):
        ctx.set_materialize_grads(False)
        ctx.training = training
        ctx.save_for_backward(*[inputs[name] for name in training.read], *own)
        ctx.mark_non_differentiable(*[results[name] for name in training.apart])
        return tuple([results[name] for name in training.call.whole.wanted])

    @staticmethod
    def backward(ctx, *cotangents):
        training, saved = ctx.training, ctx.saved_tensors
        call = training.call.whole
        refuse_create_graph(call.graph.name)
        refuse_batched(call.graph.name, cotangents)
        incoming = {name: x for name, x in zip(call.wanted, cotangents) if x is not None}
        names = [name for name, needed in zip(call.tensors, ctx.needs_input_grad[4:]) if needed]
        read = dict(zip(training.read, saved))
        gradients = training.backward(read, saved[len(read) :], incoming, names)
        return None, None, None, None, *map(gradients.get, call.tensors)


apply = super(torch.autograd.Function, InSegments).apply
"""Without what InSegments.apply does for function transforms, under which calls are refused."""
