"""The value of a definition on tensors, in float64: the oracle that kernels are held against."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager

import torch

from .block import Definition
from .check import check
from .dense import evaluate_dense
from .layout import DTYPE, Layout, layout_of, problem, sizes_of
from .loop import run_loop
from .lower import Lowering, lower
from .problems import DefinitionError
from .program import LOOP, SEQUENCE, TOKEN, Apply, Constant, Input, Program
from .schedule import schedule
from .types import Axes

Values = dict[int, torch.Tensor | float]

SMALL_STATE = 1 << 20
"""Numbers in all lanes of a state below which one CPU thread steps it."""


def evaluate(
    definition: Definition,
    inputs: Mapping[str, torch.Tensor | None],
    *,
    declared: Mapping[str, Axes],
    outputs: Sequence[str] | Mapping[str, Axes],
    params: Mapping[str, float] | None = None,
    lengths: Sequence[int] | None = None,
    axes: Mapping[str, int] | None = None,
    defaults: Mapping[str, float] | None = None,
    segment: int | None = None,
) -> dict[str, torch.Tensor | None]:
    """Outputs by name, float64, on the inputs' device: a final state [N, HV, ...], any other name [B, T, HV, ...]; of a
    dense definition, over the axes that outputs gives it.

    Differentiable; gradients come in each input's own dtype, so pass float64 leaves to have them unrounded.

    declared: axes of every input, absent ones (None or missing in ``inputs``) too.
    lengths: tokens of each packed sequence (then B = 1), in the order of the tensors; rows past the last are 0.
    outputs: names; for a dense definition, each with its axes.
    axes: sizes that no tensor shows. defaults: values of absent inputs; an absent initial state is 0.
    segment: under autograd, keep only the states at every so many tokens and compute the rest again (the square
        root of T keeps least).

    An output whose lines were all dropped is None. Raises DefinitionError.
    """
    inputs = {name: inputs.get(name) for name in declared}
    sizes = sizes_of(inputs, declared) | dict(axes or {})
    params, defaults = params or {}, defaults or {}
    absent = {name for name, x in inputs.items() if x is None and name not in defaults} - definition.initial_inputs
    _, problems = check(definition, declared, sizes, params, absent)
    if problems:
        raise DefinitionError(problems)
    filled = {name: defaults.get(name, 0.0) for name, x in inputs.items() if x is None}
    if definition.dense:
        return evaluate_dense(definition, inputs, declared, outputs, {**sizes, **params}, filled, absent)
    program = lower(definition, Lowering(declared, {**sizes, **params}, filled, lengths is not None), absent)
    layout = layout_of(inputs, declared, sizes, lengths)
    states = {name: definition.finals[name].state.id for name in outputs if name in definition.finals}
    tokens = {name: value_of(name, definition, program) for name in outputs if name not in states}
    wanted = [at for at in tokens.values() if at is not None] if layout.lanes.rows else []
    plan = schedule(program, wanted, states.values())
    run = _Run(program, layout, inputs, declared)
    run.operations(plan.before)
    states_axes = [slot.axes for slot in program.states.values()]
    elements = layout.lanes.N * layout.heads * max((math.prod(layout.shape(axes)) for axes in states_axes), default=0)
    with threads_for(elements, layout.device):
        gathered, finals = run_loop(program, plan, run.values, layout.lanes, layout.heads, segment)
    run.values |= gathered
    run.operations(plan.after)
    result = {name: layout.per_sequence(finals[state]) for name, state in states.items()}
    for name, at in tokens.items():
        result[name] = None if at is None else layout.per_token(run.rows(at) if wanted else run.no_rows(name))
    return {name: result[name] for name in outputs}


@contextmanager
def threads_for(elements: int, device: torch.device):
    """One thread while a small state is stepped on a CPU: sharing 10 us of work gains little, and on a busy machine
    each operation would wait for the scheduler (measured: 9 times slower)."""
    threads = torch.get_num_threads()
    if device.type == "cpu" and elements < SMALL_STATE:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def value_of(name: str, definition: Definition, program: Program) -> int | None:
    """The operation of a per-token output; None when all of its lines were dropped."""
    if name in program.values:
        return program.values[name][0]
    if any(each.target.id == name for each in (*definition.let, *definition.step)):
        return None
    raise problem(f"output {name!r} is assigned by no line and is no final state")


class _Run:
    """The operations outside the loop. values: operation id -> number or tensor [1 | N | R, 1 | heads, ...]."""

    def __init__(self, program: Program, layout: Layout, inputs, declared):
        self.program, self.layout, self.inputs, self.declared = program, layout, inputs, declared
        self.values: Values = {}
        self.gathered: Values = {}

    def operations(self, ids: Iterable[int]) -> None:
        for at in ids:
            operation = self.program.operations[at]
            match operation.source:
                case Input(name=name):
                    self.values[at] = self.layout.load(self.inputs[name], self.declared[name], operation.level)
                case Constant(value=value, axes=axes):
                    self.values[at] = value if axes is None else self.layout.filled(value, axes)
                case Apply(compute=compute, args=args, static=static):
                    by_row = operation.level in (TOKEN, LOOP)
                    self.values[at] = compute(*(self.operand(arg, by_row) for arg in args), *static)

    def operand(self, at: int, by_row: bool) -> torch.Tensor | float:
        """A value of each sequence is repeated for its rows where it meets values of rows."""
        if not by_row or self.program.operations[at].level != SEQUENCE:
            return self.values[at]
        if at not in self.gathered:
            self.gathered[at] = self.values[at].index_select(0, self.layout.lanes.sequence)
        return self.gathered[at]

    def rows(self, at: int) -> torch.Tensor:
        return self.layout.rows(self.values[at], self.program.operations[at].level)

    def no_rows(self, name: str) -> torch.Tensor:
        """An output without tokens, still tied to the inputs, so that their gradients are 0 and not missing."""
        axes = self.program.values[name][1]
        tie = sum(x.reshape(-1)[:0].sum() for x in self.inputs.values() if x is not None and x.is_floating_point())
        return torch.zeros(0, self.layout.heads, *self.layout.shape(axes), dtype=DTYPE, device=self.layout.device) + tie
