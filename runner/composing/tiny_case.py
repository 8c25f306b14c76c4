"""One tiny case of a definition, in float64: inputs, and every reading's value on them.

Two values that agree here are taken for one. Params differ from their defaults, so that a constant of a stage is not
taken for a param that happens to have its value.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...stages._seqs import Seqs
from ..definition import evaluate
from ..definition.block import Final
from ..definition.types import HEADS
from ..diagnostics.errors import ChunkwiseError
from ..expression import Name
from ..graphs.build_graph import input_value
from ..graphs.graph import Graph, Value
from ..graphs.sizes import complete, number, parameters
from ..loading.spec import PipelineSpec
from ..loading.variants import with_axes
from ..planning.sequences import seqs_of
from ..verification.generate import make_inputs
from ..verification.oracle import defaults
from .readings import Reading, Readings, declared_axes, entry

SIZES = {"B": 1, "T": 9, "C": 4, "H": 2, "HQ": 2, "G": 2, "HV": 4, "K": 3, "V": 2}
OTHERS = (5, 7, 6, 8)
"""Sizes of axes with other names, in the order of the inputs; no two small enough to be taken for one another."""
UNSAID = "1"
"""The number of a param that a definition has no word for."""
MOVED = (1.37, 0.83, 1.19, 0.71)
"""What params are multiplied by, in turn."""

Tensors = Mapping[str, torch.Tensor | None]


@dataclass(frozen=True)
class TinyCase:
    """known: the readings that are scalars, vectors or inputs, with their values [B, T, heads, inner axes...]. entries,
    ends: states by name, entering each token [B, T, heads, ...] and after the last [N, heads, ...]. outputs: as the
    definition gives them. numbers: what a stage's param may be, by text."""

    spec: PipelineSpec
    readings: Readings
    sizes: Mapping[str, int]
    params: Mapping[str, float]
    inputs: Tensors
    values: Mapping[str, Value]
    known: Sequence[tuple[Reading, torch.Tensor]]
    entries: Tensors
    ends: Tensors
    outputs: Tensors
    output_axes: Mapping[str, tuple[str, ...]]
    numbers: Mapping[str, float]

    @property
    def seqs(self) -> Seqs:
        return seqs_of(None, self.sizes)

    @property
    def head(self) -> str | None:
        return next((axis for axis in HEADS if axis in self.sizes), None)


def tiny_case(spec: PipelineSpec, readings: Readings, outputs: Sequence[str], seed: int = 0) -> TinyCase:
    """The case of a file without stages. outputs: names of the definition."""
    small = with_axes(spec, {axis: SIZES.get(axis, OTHERS[0]) for axis in spec.axes})
    values = {name: input_value(each, small.axes) for name, each in small.inputs.items()}
    bare = Graph(small, frozenset(), values, values, {}, {})
    sizes = complete(bare, {**sizes_of(small), "C": SIZES["C"]})
    inputs = make_inputs(bare, sizes, torch.float64, "cpu", seed)
    usual = parameters(bare, sizes, {})
    moved = {name: x * MOVED[at % len(MOVED)] for at, (name, x) in enumerate(usual.items())}
    for params in (moved, usual):
        found = evaluated(small, readings, outputs, inputs, sizes, params)
        if all(x is None or bool(torch.isfinite(x).all()) for x in found.values()):
            break
    states = readings.state_axes
    return TinyCase(
        small, readings, sizes, params, inputs, values,
        known=[(each, found[each.id]) for each in readings.values if tells(each, small) and found[each.id] is not None],
        entries={name: found[entry(name)] for name in states},
        ends={name: found[f"#end {name}"] for name in states},
        outputs={name: found[name] for name in outputs},
        output_axes={name: axes_of(name, readings, sizes) for name in outputs},
        numbers=numbers_of(readings.constants, {**sizes, **params}),
    )  # fmt: skip


def tells(reading: Reading, spec: PipelineSpec) -> bool:
    """Matrices are no ports of chunked stages, but where the file itself has one of each token."""
    return len(reading.axes) < 2 or (isinstance(reading.node, Name) and reading.node.id in spec.inputs)


def evaluated(spec: PipelineSpec, readings: Readings, outputs, inputs: Tensors, sizes, params) -> dict:
    """Every reading, every state before each step and after the last, and the outputs."""
    definition = readings.definition
    line = definition.step[0].line
    ends = {f"#end {name}": Final(Name(name, 0, 0), line) for name in definition.states}
    names = [each.id for each in readings.values] + [entry(name) for name in definition.states] + list(ends)
    return evaluate(
        replace(definition, finals={**definition.finals, **ends}),
        inputs,
        declared=declared_axes(spec),
        outputs=list(dict.fromkeys([*names, *outputs])),
        params=params,
        axes=sizes,
        defaults=defaults(spec),
    )


def sizes_of(spec: PipelineSpec) -> dict[str, int]:
    """A size for every axis of the inputs that the file does not fix."""
    names = dict.fromkeys(axis for each in spec.inputs.values() for axis in each.shape if not axis.isdigit())
    others = iter(OTHERS * len(names))
    free = [axis for axis in names if axis not in spec.axes and axis != "N"]
    return {axis: SIZES[axis] if axis in SIZES else next(others) for axis in free}


def axes_of(output: str, readings: Readings, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The named axes of an output of the definition."""
    heads = tuple(axis for axis in HEADS if axis in sizes)[:1]
    final = readings.original.finals.get(output)
    if final is not None:
        return ("N", *heads, *readings.state_axes[final.state.id])
    return ("B", "T", *heads, *readings.value_axes[output])


def numbers_of(texts: Collection[str], names: Mapping[str, float]) -> dict[str, float]:
    found = {UNSAID: 1.0}
    for text in texts:
        try:
            found[text] = float(number(text, text, names, None))
        except ChunkwiseError:
            continue
    return found
