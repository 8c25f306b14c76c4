"""Tensors with named axes: joined by name, contracted by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..expression import in_64_bits
from .types import Axes


@dataclass(frozen=True)
class Array:
    """axes: one name for each dimension of x, each once."""

    x: torch.Tensor
    axes: Axes


Value = Array | float | bool


def joined_axes(values: Sequence[Value]) -> Axes:
    return tuple(dict.fromkeys(axis for value in values if isinstance(value, Array) for axis in value.axes))


def aligned(value: Value, axes: Axes):
    """The tensor with a dimension for each of axes, of size 1 where it has none; a number as it is."""
    if not isinstance(value, Array):
        return in_64_bits(value)
    order = [value.axes.index(axis) for axis in axes if axis in value.axes]
    shape = [value.x.shape[value.axes.index(axis)] if axis in value.axes else 1 for axis in axes]
    return value.x.permute(order).reshape(shape)


def mapped(compute: Callable, *values: Value) -> Array:
    """Number by number, over all the axes that the values have."""
    axes = joined_axes(values)
    return Array(compute(*(aligned(value, axes) for value in values)), axes)


def over(compute: Callable, axis: str, keep: bool, *values: Array) -> Array:
    """A function of whole rows along one axis. keep: whether the axis stays."""
    axes = joined_axes(values)
    x = compute(*torch.broadcast_tensors(*(aligned(value, axes) for value in values)), axes.index(axis))
    return Array(x, axes if keep else tuple(each for each in axes if each != axis))


def contracted(left: Array, right: Array, axis: str) -> Array:
    """The sum over one axis of the products."""
    axes = joined_axes((left, right))
    place = {each: at for at, each in enumerate(axes)}
    kept = [place[each] for each in axes if each != axis]
    x = torch.einsum(left.x, [place[each] for each in left.axes], right.x, [place[each] for each in right.axes], kept)
    return Array(x, tuple(each for each in axes if each != axis))


def picked(x: Array, places: Array, axis: str) -> Array:
    """The numbers of x along axis at the places, 0 where a place is below 0; axes of both are gone through together."""
    rest = tuple(each for each in x.axes if each != axis)
    axes = tuple(dict.fromkeys((*places.axes, *rest)))
    own = tuple(each for each in places.axes if each not in rest)
    index = Array(places.x.long().flatten(0, -1).reshape(places.x.shape), places.axes)
    flat = aligned(index, (*rest, *own)).flatten(len(rest))  # [rest..., all places]
    source = aligned(x, (*rest, axis))
    shape = torch.broadcast_shapes(source.shape[:-1], flat.shape[:-1])
    if source.shape[-1]:
        there = flat.clamp(min=0).expand(*shape, -1)
        found = torch.where(flat < 0, 0.0, torch.take_along_dim(source.expand(*shape, -1), there, -1))
    else:
        found = source.new_zeros(*shape, flat.shape[-1])
    sizes = [places.x.shape[places.axes.index(each)] for each in own]
    return Array(aligned(Array(found.reshape(*shape, *sizes), (*rest, *own)), axes), axes)


def largest(x: Array, axis: str, named: str, count: int) -> Array:
    """The places along axis of the count largest numbers, the lower one first where two are alike, over the axis named;
    -1 past the last number."""
    moved = x.x.movedim(x.axes.index(axis), -1)
    places = moved.sort(stable=True, dim=-1, descending=True).indices[..., :count]
    places = torch.nn.functional.pad(places, (0, count - places.shape[-1]), value=-1).to(x.x.dtype)
    return Array(places, (*(each for each in x.axes if each != axis), named))
