"""From tensors as a pipeline declares them to ``[rows, heads, inner axes...]`` in float64, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from .lanes import Lanes, lay_out
from .problems import DefinitionError, Problem
from .program import SEQUENCE, TOKEN
from .types import HEADS, LANES, Axes

DTYPE = torch.float64


@dataclass(frozen=True)
class Layout:
    """head: the head axis that a step runs for, None when no input has one. T: None when no input has tokens."""

    sizes: Mapping[str, int]
    B: int
    T: int | None
    head: str | None
    lanes: Lanes
    device: torch.device

    @property
    def heads(self) -> int:
        return self.sizes[self.head] if self.head else 1

    def shape(self, axes: Axes) -> tuple[int, ...]:
        """The sizes of inner axes."""
        return tuple(self.sizes[axis] if axis in self.sizes else int(axis) for axis in axes)

    def load(self, x: torch.Tensor, declared: Axes, level: int) -> torch.Tensor:
        """[1 | N | R, 1 | heads, inner axes...] of an input, by rank or row."""
        lane = [at for axis in LANES for at, each in enumerate(declared) if each == axis]
        head = [at for at, each in enumerate(declared) if each in HEADS]
        rest = [at for at in range(len(declared)) if at not in lane and at not in head]
        x = x.permute(*lane, *head, *rest)
        if level == TOKEN:
            if len(lane) == 1:  # tokens that are the same for the whole batch
                x = x.expand(self.B, *x.shape)
            x = x.flatten(0, 1).index_select(0, self.lanes.row)
        elif level == SEQUENCE:
            x = x.index_select(0, self.lanes.order)
        elif not lane:
            x = x.unsqueeze(0)
        return self._by_head(x.to(DTYPE), declared[head[0]] if head else None)

    def _by_head(self, x: torch.Tensor, axis: str | None) -> torch.Tensor:
        if axis is None:
            return x.unsqueeze(1)
        count = x.shape[1]
        if count == self.heads:
            return x
        if count == 0 or self.heads % count:
            raise problem(f"{self.head} = {self.heads} is no multiple of {axis} = {count}")
        return x.repeat_interleave(self.heads // count, dim=1)

    def filled(self, value: float, axes: Axes) -> torch.Tensor:
        return torch.full((1, 1, *self.shape(axes)), value, dtype=DTYPE, device=self.device)

    def rows(self, x: torch.Tensor | float, level: int) -> torch.Tensor:
        """[R, heads, ...] of any value."""
        if not isinstance(x, torch.Tensor):
            x = self.filled(x, ())
        if level == SEQUENCE:
            x = x.index_select(0, self.lanes.sequence)
        return x.expand(self.lanes.rows, self.heads, *x.shape[2:])

    def per_token(self, rows: torch.Tensor) -> torch.Tensor:
        """[B, T, heads, ...] with 0 where no sequence is; without the axes that the inputs do not have."""
        inner = rows.shape[2:]
        total = rows.new_zeros(self.lanes.total, *rows.shape[1:]).index_copy(0, self.lanes.row, rows)
        lead = (self.B,) if self.T is None else (self.B, self.T)
        return total.reshape(*lead, *([self.heads] if self.head else []), *inner)

    def per_sequence(self, x: torch.Tensor) -> torch.Tensor:
        """[N, heads, ...] in the caller's order of a value by rank."""
        x = x.index_select(0, self.lanes.rank)
        return x if self.head else x.squeeze(1)


def problem(message: str) -> DefinitionError:
    return DefinitionError([Problem(message, None)])


def sizes_of(inputs: Mapping[str, torch.Tensor | None], declared: Mapping[str, Axes]) -> dict[str, int]:
    """Axis sizes as the tensors show them."""
    sizes: dict[str, int] = {}
    for name, x in inputs.items():
        if x is None:
            continue
        if x.dim() != len(declared[name]):
            raise problem(f"{name} has {x.dim()} dimensions, declared is {' '.join(declared[name])}")
        for axis, size in zip(declared[name], x.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise problem(f"axis {axis} is {sizes[axis]}, but {size} in {name}")
    return sizes


def layout_of(
    inputs: Mapping[str, torch.Tensor | None],
    declared: Mapping[str, Axes],
    sizes: Mapping[str, int],
    lengths: Sequence[int] | None,
) -> Layout:
    known = {axis for axes in declared.values() for axis in axes}
    T = sizes["T"] if "T" in known else None
    B = sizes.get("B", 1 if lengths is not None else sizes.get("N", 1))
    steps = 1 if T is None else T
    if lengths is None:
        starts, lengths = [b * steps for b in range(B)], [steps] * B
    else:
        if B != 1 or sum(lengths) > steps:
            raise problem(f"packed sequences of {sum(lengths)} tokens do not fit B = {B}, T = {steps}")
        starts = [sum(lengths[:n]) for n in range(len(lengths))]
    device = next((x.device for x in inputs.values() if x is not None), torch.device("cpu"))
    head = next((name for name in HEADS if name in known and name in sizes), None)
    return Layout(sizes, B, T, head, lay_out(starts, lengths, B * steps, device), device)
