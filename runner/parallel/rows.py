"""Rows of tensors as a segment's kernels read and write them: nothing is differentiated here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..calling.call import Tensors
from ..calling.signature import PLAIN


class Whole(NamedTuple):
    """A tensor that holds the rows of all segments, as launching/program.py makes tensors."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Rows:
    """Of a tensor, along an axis. shape: of the tensor that they are."""

    axis: int
    first: int
    shape: tuple[int, ...]

    def place_in(self, x: torch.Tensor) -> torch.Tensor:
        """A view that autograd knows: a write to x is one to what was kept of these rows."""
        return x.narrow(self.axis, self.first, self.shape[self.axis])

    def of(self, x: torch.Tensor) -> torch.Tensor:
        if view is None or type(x) not in PLAIN:
            return self.place_in(x)
        strides = x.stride()
        return view(x, self.shape, strides, self.first * strides[self.axis])


view = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", None)
"""What PyTorch's compiler has its own code view memory by: half the time of narrow, which tells autograd. None where
this PyTorch has it elsewhere."""


def rows_in(tensors: Tensors, rows: Mapping[str, Rows]) -> Tensors:
    """The rows of those tensors that have some, the others as they are."""
    found = dict(tensors)
    for name, each in rows.items():
        x = tensors.get(name)
        if x is not None:
            found[name] = each.of(x)
    return found


def rows_of(wholes: Mapping[str, Whole], axes: Mapping[str, int | None], first: int, count: int) -> dict[str, Rows]:
    """count rows from first on, or those that there are."""
    found = {}
    for name, whole in wholes.items():
        axis, shape = axes[name], list(whole.shape)
        shape[axis] = min(count, shape[axis] - first)
        found[name] = Rows(axis, first, tuple(shape))
    return found
