"""What a recurrence is, found by probing one step of it: how its state decays, whether a write reads the state, when
the output is read.

A step is applied to the zero state, to each unit state and to random ones. It is affine if the last agree with the
others; then it multiplies one side of the state by a matrix A. A = diag(d) is a decay; A = (I - x y^T) diag(d), either
way round, a decay with a delta correction. d is looked for among the definition's own values, so it has a text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from ...stages._contract import F32, Port
from ..definition import evaluate
from ..definition.block import Final, Initial
from ..expression import Call, Name, Node, names_in
from ..verification.oracle import defaults
from .readings import Reading, declared_axes
from .tiny_case import TinyCase

SMALL = 1e-9
TOKEN = 3
"""The token whose step is probed."""


@dataclass(frozen=True)
class Algebra:
    """Of one state. affine: its step is affine in it. decay: the value that it decays by, and that value [B, T, heads,
    channels]; None for no decay, or one that was not found.

    correction: what a write takes off: none, delta (what the state holds at its key), decoupled (at another vector),
    other (the step is no decay with such a correction). before: outputs that are computed before it is written.
    """

    state: str
    affine: bool
    decay: Reading | None
    decay_rows: torch.Tensor | None
    fixed: bool
    correction: str
    before: tuple[str, ...]

    @property
    def words(self) -> str:
        """One line for a reader."""
        if not self.affine:
            return f"{self.state}: its step is not affine in it, so that no chunk can be summed up before it is known"
        written = {
            "none": "a write does not read the state",
            "delta": "a write takes off what the state holds at its key (delta rule)",
            "decoupled": "a write takes off what the state holds at another vector than its key",
            "other": "a step multiplies the state by a matrix that is no decay with a delta correction",
        }[self.correction]
        names = " and ".join(self.before)
        read = f"; {names} computed before it is written" if self.before else "; read after it is written"
        return f"{self.state}: {self.decay_words}; {written}{read}"

    @property
    def decay_words(self) -> str:
        if self.decay is None:
            return "no decay" if self.correction != "other" else "decay unknown"
        per = "channel" if self.decay.axes else "head"
        return f"decay {self.decay.text}, one for each {per}" + (
            ", the same at every token" if self.fixed else " and token"
        )


def exponent(fact: Algebra) -> tuple[Node, bool]:
    """The expression of a decay's logarithm, or that of the decay, and True, where it is no exponential."""
    node = fact.decay.node
    if isinstance(node, Call) and node.function.id == "exp":
        return node.args[0], False
    return node, True


def decay_port(fact: Algebra, case: TinyCase) -> Port:
    """What a stage that gives a decay's logarithm has as its output."""
    heads = [case.head] if case.head else []
    law = "<= 0" if bool((fact.decay_rows <= 1).all()) else None
    slope = fact.fixed and not fact.decay.axes
    lanes = [] if slope else ["B", "T"]
    unit = "log_decay/ln/slope" if slope else "log_decay/ln/token"
    return Port(" ".join([*lanes, *heads, *fact.decay.axes]), F32, unit=unit, where=law)


def algebra(case: TinyCase) -> list[Algebra]:
    return [of_state(case, name) for name in case.readings.state_axes]


def of_state(case: TinyCase, state: str) -> Algebra:
    before = read_before(case, state)
    step = probed(case, state)
    if step is None:
        return Algebra(state, False, None, None, False, "other", before)
    sides = [
        A for A in (one_sided(step, side) for side in range(len(case.readings.state_axes[state]))) if A is not None
    ]
    for rank, correction in ((0, "none"), (1, "delta")):
        for reading, rows in decays(case):
            factor = rows[0, TOKEN] if rows is not None else torch.ones(())
            rest = next((rest for A in sides if (rest := beside(A, factor, rank)) is not None), None)
            if rest is not None:
                fixed = rows is not None and bool((rows == rows[:1, :1]).all())
                coupled = bool(((rest - rest.mT).abs() <= 1e-7).all())
                return Algebra(state, True, reading, rows, fixed, correction if coupled else "decoupled", before)
    return Algebra(state, True, None, None, False, "other", before)


def probed(case: TinyCase, state: str) -> torch.Tensor | None:
    """The step's linear part [heads, state axes, state axes]; None where it is not affine."""
    axes = case.readings.state_axes[state]
    shape = [case.sizes[axis] for axis in axes]
    n = torch.Size(shape).numel()
    noise = torch.randn(2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    starts = torch.cat([torch.zeros(1, n, dtype=torch.float64), torch.eye(n, dtype=torch.float64), noise])
    heads = case.sizes[case.head] if case.head else 1
    given = starts.reshape(-1, 1, *shape).expand(-1, heads, *shape)
    ends = after_one_step(case, state, given).reshape(n + 3, heads, n)
    linear = (ends[1 : n + 1] - ends[:1]).permute(1, 2, 0)
    expected = ends[:1] + torch.einsum("hij,bj->bhi", linear, noise)
    if not bool(((ends[n + 1 :] - expected).abs() <= SMALL * (1 + expected.abs())).all()):
        return None
    return linear.reshape(heads, *shape, *shape)


def after_one_step(case: TinyCase, state: str, given: torch.Tensor) -> torch.Tensor:
    """The state after one token, for several states before it; other states as they enter that token."""
    definition, count, declared = case.readings.original, len(given), dict(declared_axes(case.spec))
    heads, inputs = [case.head] if case.head else [], {}
    for name, x in case.inputs.items():
        inputs[name] = for_token(x, declared[name], count)
    initial = {}
    for name, axes in case.readings.state_axes.items():
        declared[f"#{name}"] = ("N", *heads, *axes)
        entering = case.entries[name][0, TOKEN]
        entering = entering if heads else entering[0]
        inputs[f"#{name}"] = (
            (given if heads else given[:, 0]) if name == state else entering.expand(count, *entering.shape)
        )
        initial[name] = Initial(Name(f"#{name}", 0, 0), definition.states[name].line)
    last = {"#end": Final(Name(state, 0, 0), definition.states[state].line)}
    found = evaluate(
        replace(definition, states=initial, finals=last),
        inputs,
        declared=declared,
        outputs=["#end"],
        params=case.params,
        axes={axis: n for axis, n in case.sizes.items() if axis not in ("B", "N", "T", "NT")},
        defaults=defaults(case.spec),
    )
    return found["#end"]


def for_token(x: torch.Tensor, axes: Sequence[str], count: int) -> torch.Tensor:
    """One token of an input, for count sequences."""
    if "T" in axes:
        x = x.narrow(axes.index("T"), TOKEN, 1)
    for axis in ("B", "N"):
        if axis in axes:
            x = x.narrow(axes.index(axis), 0, 1).expand([count if each == axis else -1 for each in axes])
    return x


def one_sided(step: torch.Tensor, side: int) -> torch.Tensor | None:
    """The matrix [heads, n, n] by which a step multiplies one axis of the state, the others left alone."""
    rank = (step.dim() - 1) // 2
    rows, columns = 1 + side, 1 + rank + side
    rest = [axis for axis in range(1, 1 + rank) if axis != rows]
    x = step.permute(0, rows, columns, *rest, *(axis + rank for axis in rest))
    n = torch.Size(x.shape[3 : 3 + len(rest)]).numel()
    x = x.reshape(*x.shape[:3], n, n)
    A = x[..., 0, 0]
    alone = A[..., None, None] * torch.eye(n, dtype=x.dtype)
    return A if bool(((x - alone).abs() <= SMALL).all()) else None


def decays(case: TinyCase) -> Iterator[tuple[Reading | None, torch.Tensor | None]]:
    """No decay, then every direct value that may be one: a scalar or a vector."""
    yield None, None
    seen = set()
    for reading, rows in case.known:
        may_be = len(reading.axes) < 2 and reading.direct and not reading.recurrent and reading.text not in seen
        if may_be and bool((rows != 0).all()):
            seen.add(reading.text)
            yield reading, rows


def beside(A: torch.Tensor, factor: torch.Tensor, rank: int) -> torch.Tensor | None:
    """R of the rank with A = (I + R) diag(factor) or diag(factor) (I + R), if there is one."""
    n = A.shape[-1]
    if factor.dim() == 2 and factor.shape[-1] != n:
        return None
    d = factor.reshape(*factor.shape, *[1] * (2 - factor.dim())).expand(A.shape[0], n)
    for rest in (A / d[:, None, :] - torch.eye(n, dtype=A.dtype), A / d[:, :, None] - torch.eye(n, dtype=A.dtype)):
        if rank < n and bool((torch.linalg.svdvals(rest)[:, rank:] <= 1e-7).all()):
            return rest
    return None


def read_before(case: TinyCase, state: str) -> tuple[str, ...]:
    """The outputs whose line reads the state before a later line writes it."""
    definition = case.readings.original
    last = max((at for at, each in enumerate(definition.step) if each.target.id == state), default=-1)
    return tuple(
        each.target.id
        for at, each in enumerate(definition.step)
        if at < last and each.target.id in case.outputs and state in names_in(each.value)
    )
