"""A context parallel op as torch.compile sees it: two ``torch.library`` ops, as a plain op has (calling/library_op.py).

What the compiler is told does not depend on where the cut lies. N counts the sequences of all ranks, and of those lie
at most N here; a value that backward reads goes out with that many rows, the ones beyond being 0. Something is
always exchanged, by the rule of split_graph.py, and where that is no map, 0 stands in its place.
"""

from collections.abc import Mapping
from itertools import count as counter

import torch

from ..calling.library_op import LENGTHS, LibraryOp, axes_of, count, lengths_of, packed
from ..calling.training import BackwardPass
from ..graphs.graph import Graph, Value
from ..graphs.sizes import complete, shape
from ..planning.dtypes import port_dtype
from .cut import ROWS
from .split_graph import MAPS_TOO, STATES, sizes_of
from .split_op import SplitOp
from .states import states_here, whole_states

_numbers = counter()


def parallel_library_op(parallel) -> "ParallelLibraryOp":
    """The registered op of a ParallelOp; its chunk length is the longest, for none follows what is a symbol here."""
    written = parallel.op.spec.axes.get("C")
    if written is not None and written.least is not None:
        return type(parallel)(parallel.op.with_axes({"C": written.value}), parallel.ranks.group).library
    return ParallelLibraryOp(f"{parallel.name.replace(' ', '_')}_ranks_{next(_numbers)}", parallel)


class ParallelLibraryOp(LibraryOp):
    lengths = (*LENGTHS, "SymInt[]? _rows")

    def __init__(self, name: str, parallel):
        op, ranks = parallel.op, parallel.ranks
        self.parallel, self.most = parallel, MAPS_TOO if ranks.size > 2 else STATES
        self.view = SplitOp(op, ranks, self.most) if ranks.size > 1 else op
        self.whole = self.view.graph(frozenset())
        super().__init__(name, op)

    def may_be_kept(self) -> list[str]:
        """Those of the op, and what crossed the cut and is read by gradients."""
        able = frozenset(name for name in self.trained if self.op.has_gradient(name))
        joint = self.view.joint_graph(frozenset(), able, frozenset(self.op.whole.outputs))
        return [*super().may_be_kept(), *(name for name in joint.kept if name not in self.op.whole.values)]

    def described(self, name: str) -> Value:
        return self.whole.values[name]

    def joint(self, graph: Graph, gradients, outputs, view=None) -> Graph:
        return super().joint(graph, gradients, outputs, view or self.view)

    def sizes(self, graph: Graph, sizes: Mapping[str, int], packing) -> dict[str, int]:
        found = super().sizes(graph, sizes, packing)
        lanes = found["N"] if all(each is None for each in lengths_of(packing)) else 1
        ranks, rows = self.parallel.ranks.size, packing[-1]
        every = ranks * next(found[axis] for axis in ROWS if axis in found) if rows is None else sum(rows)
        return found | sizes_of(graph, self.most, ranks, lanes, every)

    def run(self, *args):
        tensors, params, packing, outputs, gradients = self.read(args)
        given = {**tensors, **params}
        call, cut = self.parallel.agreed(given, *lengths_of(packing), packing[-1], outputs, compiled=gradients)
        call = self.parallel.split(call, cut) if self.parallel.ranks.size > 1 else call
        joint = self.fused(call, self.joint(call.graph, gradients, outputs, call.op))
        results = call.run_forward(call.tensors, joint)
        graph, _, _, sizes = self.op.read(tensors)
        sizes, joint = self.sizes(graph, sizes, packing), self.joint(graph, gradients, outputs)
        like = next(x for x in tensors.values() if x is not None)
        found = {name: self.with_room(name, results.get(name), like, call.io, sizes) for name in joint.kept}
        for name, value in call.wanted.items():
            found[value] = whole_states(results[name], cut, cut.ends) if self.parallel.is_state(name) else results[name]
        return packed(found[name] if name in found else self.nothing(name, like, call.io) for name in self.values)

    def with_room(self, name: str, x: torch.Tensor | None, like: torch.Tensor, io, sizes) -> torch.Tensor:
        """A kept value in the shape that the compiler was told; None where this cut has no such value."""
        wanted = shape(self.described(name).axes, sizes)
        if x is not None and x.shape == wanted:
            return x
        room = like.new_zeros(wanted, dtype=port_dtype(self.described(name).dtype, io))
        if x is not None:
            first_rows(room, x.shape).copy_(x)
        return room

    def incoming(self, ctx, packing, cotangents: tuple) -> tuple:
        """0 for an output that the loss of this rank does not depend on: another's may, and all exchange the same."""
        if self.parallel.ranks.size == 1:
            return cotangents
        graph, like = self.op.graph(frozenset(ctx.absent)), next(d for d in cotangents if d is not None)
        sizes = complete(graph, dict(zip(axes_of(graph), ctx.sizes)), count(packing))
        found = []
        for name, d in zip(self.first.values(), cotangents):
            value = graph.values[graph.outputs[name]] if name in ctx.outputs and graph.outputs[name] else None
            if d is None and value:
                d = like.new_zeros(shape(value.axes, sizes), dtype=port_dtype(value.dtype, ctx.io))
            found.append(d)
        return tuple(found)

    def run_backward(self, *args):
        cotangents, kept, params, packing, sizes, io, absent, gradients = self.read_backward(args)
        graph, like = self.op.graph(frozenset(absent)), next(iter(cotangents.values()))
        sizes, nothing = dict(zip(axes_of(graph), sizes)), dict.fromkeys(self.inputs)
        cut, _, _ = self.parallel.cut(*lengths_of(packing), packing[-1], sizes)
        here = sizes | {"N": len(cut.of)}
        call = self.op.call(graph, nothing, params, here, None, cut.lengths, io, like.device, {})
        call = self.parallel.split(call, cut) if self.parallel.ranks.size > 1 else call
        joint = self.fused(call, self.joint(call.graph, gradients, cotangents, call.op))
        kept = {
            name: first_rows(x, shape(joint.values[name].axes, call.sizes)) if joint.values[name].producer else x
            for name, x in kept.items()
            if name in joint.values
        }
        incoming = {
            name: states_here(d, cut, cut.ends) if self.parallel.is_state(name) else d for name, d in cotangents.items()
        }
        found = BackwardPass(call, joint)(kept, incoming)
        for name, d in found.items():
            if d is not None and graph.inputs[name].axes[0] == "N":
                found[name] = whole_states(d, cut, cut.begins)
        return packed(
            found[name] if found.get(name) is not None else self.nothing(name, like, io) for name in self.trained
        )


def first_rows(x: torch.Tensor, sizes) -> torch.Tensor:
    """The part of x with so many entries of each axis."""
    return x[tuple(slice(size) for size in sizes)]
