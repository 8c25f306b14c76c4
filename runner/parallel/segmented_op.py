"""The op on one device, a segment of the rows at a time: ``load("gated_delta").in_segments(chunks=32)``.

A segment is called with the state that the one before it left, so that of all chunk states every chunks-th is kept for
the backward pass, which rebuilds the others a segment at a time: what it holds beside inputs, outputs and gradients
shrinks with the segment, for as many more launches. Where sequences lie is what it is across ranks (cut.py), with
segments for ranks.
"""

import sys
from collections.abc import Iterator, Mapping
from numbers import Integral

import torch

from ..calling.autograd import trained
from ..calling.call import Call
from ..calling.call_help import call_help
from ..calling.function import Op, refuse_positional
from ..calling.read_arguments import wanted_outputs
from ..calling.transforms import refuse_transforms
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Value
from ..planning.least_recent import LeastRecent
from ..planning.sequences import host_lengths
from .cut import Cut, packed_cuts, plain_cut
from .gather_graph import gathering
from .segment_states import States
from .segmented_call import Layout, SegmentedCall
from .segmented_training import SegmentedTraining, apply
from .split_graph import cut_errors

Tensors = Mapping[str, torch.Tensor | None]


class SegmentedOp:
    """An op whose rows go through it a segment at a time."""

    def __init__(self, op: Op, chunks: int):
        self.op, self.chunks = op.with_mode("chunk"), chunks
        check_segments(self.op, chunks)
        self.rows = min(int(chunks) * op.spec.axes["C"].value, sys.maxsize)
        self.layout = layout_of(self.op)
        self.__signature__ = self.op.__signature__
        self.__doc__ = call_help(self.op.whole, SegmentedOp.__call__.__doc__)
        self.calls = LeastRecent(32)  # by the id of what calls of one signature share, which each holds: no other's

    def __reduce__(self):
        return SegmentedOp, (self.op, self.chunks)

    def __repr__(self) -> str:
        return f"<{self.op!r} in segments of {self.rows} rows>"

    def __call__(self, /, *positional, cu_seqlens=None, seqlens=None, outputs=None, **given):
        """The op, as Op.__call__ has it: the same outputs, states and gradients, under torch.compile too. A packed
        sequence is cut where a segment ends; cu_seqlens without seqlens is read back, once."""
        if positional:
            refuse_positional(self.op.spec)
        seqlens = None if seqlens is None else host_lengths(seqlens)
        run = self.traced if torch.compiler.is_compiling() else self.eager
        results = run(given, cu_seqlens, seqlens, outputs)
        return self.op.result._make([results.get(name) for name in self.op.spec.outputs])

    def eager(self, given: Mapping, cu_seqlens, seqlens, outputs) -> Tensors:
        refuse_transforms(self.op.spec.name, given.values())
        whole = self.op.bind(given, cu_seqlens, seqlens, outputs)
        call = self.calls.get(id(whole.found), lambda: self.segmented(whole, given))
        if not (names := trained(whole.tensors)):
            return call.forward(whole.tensors)
        training = call.trainings.get(names, lambda: SegmentedTraining(call, names, whole.tensors))
        with torch.no_grad():
            results, own = training.forward(whole.tensors)
        return dict(zip(whole.wanted, apply(training, whole.tensors, results, own, *whole.tensors.values())))

    def segmented(self, whole: Call, given: Mapping) -> SegmentedCall:
        B, T = whole.sizes["B"], whole.sizes["T"]
        cuts = [*self.cuts(B, T, whole.packing.lengths if whole.packing else None)]
        numbers = {name: x for name, x in given.items() if name in self.op.spec.params}
        return SegmentedCall(whole, numbers, cuts, min(self.rows, max(T, 1)), self.layout)

    def traced(self, given: Mapping, cu_seqlens, seqlens, outputs) -> Tensors:
        """The same out of whole calls, as torch.compile sees them."""
        wanted = wanted_outputs(self.op.spec, outputs)
        self.check_compiled(given, cu_seqlens, seqlens)
        states = States(given.get(self.layout.initial))
        cuts = self.cuts(self.size(given, "B"), self.size(given, "T"), seqlens)
        found = [self.segment(piece, cut, states, wanted) for piece, cut in zip(self.pieces(given), cuts, strict=True)]
        results = {name: joined([each[name] for each in found], axis) for name, axis in self.outputs(wanted)}
        return results | ({self.layout.final: states.final()} if self.layout.final in wanted else {})

    def check_compiled(self, given: Mapping, cu_seqlens, seqlens) -> None:
        """What only the whole call shows; the rest is each segment's to refuse. Compiled code raises a TypeError."""
        if cu_seqlens is not None and seqlens is None:
            raise TypeError(f"error[CW604]: {self.op.spec.name} in segments needs seqlens, the lengths on the host")
        state = given.get(self.layout.initial)
        count = len(seqlens) if seqlens is not None else self.size(given, "B")
        if state is not None and state.shape[0] != count:
            message = f"{self.layout.initial} has {state.shape[0]} states, and the number of sequences is {count}"
            raise TypeError(f"error[CW604]: {message}")

    def pieces(self, given: Mapping) -> Iterator[dict]:
        """What each segment is given, but for states and lengths."""
        axes = self.layout.inputs
        cut = {
            name: x.split(self.rows, axes[name])
            for name, x in given.items()
            if isinstance(x, torch.Tensor) and axes[name] is not None
        }
        whole = {name: x for name, x in given.items() if name not in cut and name != self.layout.initial}
        for parts in zip(*cut.values(), strict=True):
            yield {**whole, **dict(zip(cut, parts))}

    def cuts(self, B: int, T: int, seqlens) -> Iterator[Cut]:
        """Where the sequences lie in each segment."""
        rows = [min(self.rows, T - start) for start in range(0, T, self.rows)] or [0]
        if seqlens is None:
            yield from (plain_cut(B, at, len(rows)) for at in range(len(rows)))
        else:
            yield from packed_cuts(seqlens, rows)

    def size(self, given: Mapping, axis: str) -> int:
        return next(
            given[name].shape[value.axes.index(axis)]
            for name, value in self.op.whole.inputs.items()
            if axis in value.axes and given.get(name) is not None
        )

    def segment(self, piece: Mapping, cut: Cut, states: "States", wanted: frozenset[str]) -> Tensors:
        """The outputs of one segment; its states are kept."""
        goes_on = not all(cut.ends) or self.layout.final in wanted
        names = [name for name, _ in self.outputs(wanted)] + [self.layout.final] * goes_on
        out = self.op(**piece, **{self.layout.initial: states.entering(cut)}, seqlens=cut.lengths, outputs=names)
        if goes_on:
            states.leave(cut, getattr(out, self.layout.final))
        return out._asdict()

    def outputs(self, wanted: frozenset[str]) -> list[tuple[str, int]]:
        """The outputs that are joined, each with the place of T."""
        names = [name for name in self.op.spec.outputs if name in wanted and name != self.layout.final]
        return [(name, self.layout.outputs[name]) for name in names]


def joined(parts: list[torch.Tensor], axis: int) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)


def layout_of(op: Op) -> Layout:
    whole = op.whole
    inputs = {name: place_of(value) for name, value in whole.inputs.items()}
    outputs = {name: place_of(whole.values[value]) for name, value in whole.outputs.items() if value}
    return Layout(inputs, outputs, *states_of(op))


def place_of(value: Value) -> int | None:
    return value.axes.index("T") if "T" in value.axes else None


def check_segments(op: Op, chunks) -> None:
    """Raises ChunkwiseError: no whole number of chunks, or an op whose rows do not hang together by one state alone."""
    if isinstance(chunks, bool) or not isinstance(chunks, Integral) or chunks < 1:
        message = f"a segment is a whole number of chunks, from 1, not {chunks!r:.80}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="op.in_segments(chunks=32)"))
    if found := cut_errors(op.whole, op.stages):
        raise ChunkwiseError(*found)
    if gathering(op.whole):
        raise ChunkwiseError(
            Diagnostic(codes.NOT_CUT, f"{op.spec.name} needs the rows of all segments at once", op.spec.mark)
        )
    if None in states_of(op):
        message = f"{op.spec.name} has no one scan that takes its state from an input and gives it to an output"
        help = "the state that one segment leaves is what the next one is given, and all that it is given"
        raise ChunkwiseError(Diagnostic(codes.NOT_CUT, message, op.spec.mark, help=help))
    for name, value in op.whole.outputs.items():
        if name != states_of(op)[1] and "T" not in op.whole.values[value].axes:
            message = f"the output {name} has no row for each token, by which segments are joined"
            raise ChunkwiseError(Diagnostic(codes.NOT_CUT, message, op.spec.mark))


def states_of(op: Op) -> tuple[str | None, str | None]:
    """The input and the output that are the state of the one scan."""
    scans = [node for node in op.whole.nodes.values() if node.stage.segment]
    if len(scans) != 1:
        return None, None
    [scan], outputs = scans, op.whole.outputs
    first = scan.inputs.get("initial_state")
    last = [name for name, value in outputs.items() if value == scan.outputs.get("final_state")]
    return (first if first in op.whole.inputs else None), (last[0] if last else None)
