"""One call in segments under autograd: an ``autograd.Function`` around all of them, whose rows are written where they
belong.

A segment is a call of the op on its rows (call.Call), from the state that the one before it left. Backward they come
from the last one on, each with the cotangent that the one behind it gave its last state.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch

from ..calling.autograd import refuse_create_graph
from ..calling.call import Call, Tensors
from ..calling.training import BackwardPass
from ..calling.transforms import refuse_batched
from ..graphs.graph import Value
from ..graphs.sizes import size
from ..planning.dtypes import port_dtype
from .cut import Cut
from .segment_states import StateGradients, States


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
    """first, count: its rows."""

    first: int
    count: int
    cut: Cut

    def of(self, x: torch.Tensor | None, axis: int | None) -> torch.Tensor | None:
        return x if x is None or axis is None else x.narrow(axis, self.first, self.count)


@dataclass(frozen=True)
class Kept:
    """What a segment leaves for its backward pass. wanted: inputs with a gradient. reached: outputs that one comes
    from. read: inputs that are read again. own: state and values by name, no other's."""

    call: Call
    wanted: tuple[str, ...]
    reached: Collection[str]
    read: Collection[str]
    own: Tensors


@dataclass(frozen=True)
class SegmentedCall:
    """whole: the call, checked. numbers: those that it was given. segments: first to last."""

    whole: Call
    numbers: Mapping[str, float]
    segments: tuple[Segment, ...]
    layout: Layout

    def detached(self) -> "SegmentedCall":
        return replace(self, whole=self.whole.detached())

    def bound(self, segment: Segment, entering: torch.Tensor | None) -> Call:
        """The op on a segment's rows."""
        axes, final = self.layout.inputs, self.layout.final
        given = {name: segment.of(x, axes[name]) for name, x in self.whole.tensors.items()}
        names = [name for name in self.whole.wanted if name != final]
        if not all(segment.cut.ends) or final in self.whole.wanted:
            names.append(final)
        given |= {self.layout.initial: entering, **self.numbers}
        return self.whole.op.bind(given, None, segment.cut.lengths, names)

    def trained(self, segment: Segment, names: Collection[str], kept: list[Kept]) -> tuple[str, ...]:
        """The inputs of a segment whose gradient is wanted, where that of names is: beside those the state that an
        earlier segment left, if one of names is in it (q is in no state)."""
        initial, final = self.layout.initial, self.layout.final
        carried = not all(segment.cut.begins) and any(final in each.reached for each in kept)
        return tuple([name for name in self.whole.tensors if name in names or name == initial and carried])

    def forward(self, names: Collection[str] = ()) -> tuple[Tensors, list[Kept]]:
        """(results by output, what each segment leaves). names: of inputs whose gradient is wanted."""
        final, wanted = self.layout.final, self.whole.wanted
        states, kept = States(self.whole.tensors[self.layout.initial]), []
        results = {name: self.all_rows(self.whole.graph.values[wanted[name]]) for name in wanted if name != final}
        for segment in self.segments:
            call = self.bound(segment, states.entering(segment.cut))
            places = {name: segment.of(x, self.layout.outputs[name]) for name, x in results.items()}
            if trained := self.trained(segment, names, kept):
                found, left = self.recorded(call, trained, places)
                kept.append(left)
            else:
                found = call.run_forward(call.tensors, into=places)
            fill(places, found)
            if final in call.wanted:
                states.leave(segment.cut, found[final])
        if final in wanted:
            results[final] = states.final()
        return results, kept

    def recorded(self, call: Call, trained: tuple[str, ...], places: Tensors) -> tuple[Tensors, Kept]:
        joint = call.joint(trained, call.wanted)
        found = call.run_forward(call.tensors, joint, places)
        kept = {name: call.tensors[name] for name in joint.inputs_read_later}
        kept |= {name: found[name] for name in joint.kept}
        shared = self.whole.tensors.keys() - {self.layout.initial}
        own = {name: x for name, x in kept.items() if name not in shared}
        return found, Kept(call.detached(), trained, joint.cotangents, kept.keys() & shared, own)

    def all_rows(self, value: Value) -> torch.Tensor:
        shape = [size(axis, self.whole.sizes) for axis in value.axes]
        return torch.empty(shape, dtype=port_dtype(value.dtype, self.whole.io), device=self.whole.device)

    def backward(self, kept: list[Kept], read: Tensors, incoming: Tensors, names: Collection[str]) -> Tensors:
        """Gradients of the inputs called names. kept: as forward gave it. read: inputs that are read again. incoming:
        cotangents by output, the absent ones left out."""
        axes, initial, final = self.layout.inputs, self.layout.initial, self.layout.final
        states, values = StateGradients(incoming.get(final)), self.whole.graph.values
        rows = {name: self.all_rows(values[name]) for name in names if axes[name] is not None}
        sums, seen = {}, set()
        for segment, left in zip(reversed(self.segments), reversed(kept), strict=True):
            places = {name: segment.of(x, axes[name]) for name, x in rows.items()}
            found = self.gradients(segment, left, read, incoming, states.leaving(segment.cut), places)
            states.enter(segment.cut, found.get(initial))
            fill(places, found)
            seen |= {name for name, x in found.items() if x is not None}
            for name in names:
                if name not in rows and name in found and name != initial:
                    sums[name] = found[name] + sums[name] if name in sums else found[name]
        found = {name: x for name, x in rows.items() if name in seen} | sums
        return found | ({initial: states.initial(self.whole.sizes["N"])} if initial in names else {})

    def gradients(self, segment: Segment, left: Kept, read: Tensors, incoming, leaving, places: Tensors) -> Tensors:
        """Of one segment, by input."""
        given = {name: segment.of(x, self.layout.outputs[name]) for name, x in incoming.items()}
        given[self.layout.final] = leaving
        found = {name: given[name] for name in left.call.wanted if given.get(name) is not None}
        if not found:
            return {}
        kept = {name: segment.of(read[name], self.layout.inputs[name]) for name in left.read} | left.own
        return BackwardPass(left.call, left.call.joint(left.wanted, found))(kept, found, places)


class InSegments(torch.autograd.Function):
    """Inputs: the call in segments, then the whole call's tensors in their order. Outputs: the wanted ones in order."""

    @staticmethod
    def forward(ctx, call: SegmentedCall, *tensors):
        ctx.set_materialize_grads(False)
        results, kept = call.forward([name for name, x in call.whole.tensors.items() if needs_gradient(x)])
        ctx.call, ctx.read = call.detached(), list({name: None for each in kept for name in each.read})
        own = [x for each in kept for x in each.own.values()]
        ctx.save_for_backward(*[call.whole.tensors[name] for name in ctx.read], *own)
        ctx.kept = [replace(each, own=dict.fromkeys(each.own)) for each in kept]
        reached = {name for each in kept for name in each.reached}
        ctx.mark_non_differentiable(*[x for name, x in results.items() if name not in reached])
        return tuple([results[name] for name in call.whole.wanted])

    @staticmethod
    def backward(ctx, *cotangents):
        call, saved = ctx.call, iter(ctx.saved_tensors)
        refuse_create_graph(call.whole.graph.name)
        refuse_batched(call.whole.graph.name, cotangents)
        incoming = {name: x for name, x in zip(call.whole.wanted, cotangents) if x is not None}
        names = [name for name, needed in zip(call.whole.tensors, ctx.needs_input_grad[1:]) if needed]
        read = {name: next(saved) for name in ctx.read}
        kept = [replace(each, own={name: next(saved) for name in each.own}) for each in ctx.kept]
        gradients = call.backward(kept, read, incoming, names)
        return None, *map(gradients.get, call.whole.tensors)


def needs_gradient(x: torch.Tensor | None) -> bool:
    return x is not None and x.requires_grad


def fill(places: Tensors, found: Tensors) -> None:
    """What was not written there already; what was not found is 0."""
    for name, place in places.items():
        x = found.get(name)
        if x is None:
            place.zero_()
        elif x is not place:
            place.copy_(x)
