"""A definition as a list of tensor operations, each with the least that it depends on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .types import Axes

HEAD, SEQUENCE, TOKEN, LOOP = range(4)
"""What a value differs by: at most the head; the sequence; the token; the state, so it is made in the loop."""


@dataclass(frozen=True)
class Input:
    name: str


@dataclass(frozen=True)
class State:
    name: str


@dataclass(frozen=True)
class Constant:
    """A plain number, or a tensor over inner axes full of it."""

    value: float
    axes: Axes | None = None


@dataclass(frozen=True)
class Apply:
    """compute(*args, *static) on the tensors of earlier operations."""

    compute: Callable
    args: tuple[int, ...]
    static: tuple[int, ...] = ()


@dataclass(frozen=True)
class Operation:
    """rank: inner axes without those of size 1 that only make it broadcast."""

    source: Input | State | Constant | Apply
    level: int
    rank: int

    @property
    def args(self) -> tuple[int, ...]:
        return self.source.args if isinstance(self.source, Apply) else ()


@dataclass(frozen=True)
class StateSlot:
    """Operation ids: the state as the step finds it, as it leaves it, and before the first token."""

    entry: int
    exit: int
    initial: int
    axes: Axes


@dataclass(frozen=True)
class Program:
    """values: assigned name -> (operation id, axes) at the end of the step."""

    operations: tuple[Operation, ...]
    states: Mapping[str, StateSlot]
    values: Mapping[str, tuple[int, Axes]]
