"""Do the numbers of one execution keep to the laws that the pipeline states? Inputs first, then every stage's outputs.

Types are checked on the file; laws (``where``) speak of values, and only a look at the values can tell.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from ...stages import _laws
from ...stages._laws import Law
from ...stages._seqs import Seqs
from ..calling.function import Call
from ..diagnostics import codes
from ..diagnostics.errors import Diagnostic, Note
from ..graphs.graph import Value
from ..planning.execute import execute
from ..planning.plan import Step


@dataclass(frozen=True)
class Probe:
    """checked: names of the values that state a law. found: one diagnostic for each law that one of them breaks."""

    checked: tuple[str, ...]
    found: tuple[Diagnostic, ...]


def probe(call: Call) -> Probe:
    """Run the call's forward pass once and look at every value with a law."""
    checked, found = [], []

    def look(value: Value, x: torch.Tensor | None, maker: str) -> None:
        if x is None or not value.laws:
            return
        checked.append(value.name)
        found.extend(each for law in value.laws for each in broken(value, law, x, call.seqs, maker))

    def observe(step: Step, run, outputs: Mapping[str, torch.Tensor | None]) -> None:
        run()
        maker = f"{step.node.id} ({step.node.stage.name}, {step.backend}) makes it"
        for port, name in step.node.outputs.items():
            look(call.graph.values[name], outputs[port], maker)

    for name, x in call.tensors.items():
        look(call.graph.inputs[name], x, f"{name} is an input")
    if not found:
        execute(call.forward_plan(), call.contiguous, call.params, call.seqs, observe)
    return Probe(tuple(checked), tuple(found))


def broken(value: Value, law: Law, x: torch.Tensor, seqs: Seqs, maker: str) -> list[Diagnostic]:
    """The diagnostic of a law that x breaks; rows past the last sequence do not count."""
    axes = tuple(map(str, value.axes))
    count, total, first = 0, 0, None
    for start, part in sequences(x, axes, seqs):
        wrong = _laws.violations(law, part, axes, seqs.C)
        if law.kind == "unit_norm":
            # one row that is too long breaks the law once, not once for each of its numbers
            wrong, part = wrong.select(axes.index(law.axis), 0), part.double().norm(dim=axes.index(law.axis))
        count, total = count + int(wrong.sum()), total + wrong.numel()
        if first is None and wrong.any():
            first = place(value.name, law, axes, wrong, part, start)
    if not count:
        return []
    things = "rows" if law.kind == "unit_norm" else "values"
    message = f"{value.name} breaks its law: {law.words}"
    notes = (Note(f"{count} of {total} {things} break it; the first is {first}"), Note(maker))
    return [Diagnostic(codes.VALUE_OUT_OF_LAW, message, value.mark_of("where"), notes)]


def sequences(x: torch.Tensor, axes: tuple[str, ...], seqs: Seqs) -> Iterator[tuple[int, torch.Tensor]]:
    """(first row, rows) of each sequence of x; all of x where it has no tokens or is not packed."""
    if not seqs.packed or "T" not in axes:
        yield 0, x
        return
    start = 0
    for length in seqs.lengths:
        yield start, x.narrow(axes.index("T"), start, length)
        start += length


def place(name: str, law: Law, axes, wrong: torch.Tensor, shown: torch.Tensor, start: int) -> str:
    """``g[0, 5, 1] = 0.25`` of the first number that breaks the law; ``|k[0, 5, 1, :]| = 3`` of a row."""
    index = wrong.nonzero()[0].tolist()
    number = f"{shown[tuple(index)].item():.6g}"
    if law.kind == "unit_norm":
        index.insert(axes.index(law.axis), ":")
    if "T" in axes:
        index[axes.index("T")] += start
    where = f"{name}[{', '.join(map(str, index))}]"
    return f"|{where}| = {number}" if law.kind == "unit_norm" else f"{where} = {number}"
