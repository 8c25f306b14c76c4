"""A graph as boxes, labels and arrows, before any drawing language.

One tensor has one label, whoever reads it: an input's stands in its own box, a produced one's on the stem that
leaves its stage, where the arrows part.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .picture_text import duration

INPUT, VALUE, OUTPUT, STAGE = "input", "value", "output", "stage"
PLAIN, OPTIONAL, ABSENT = "plain", "optional", "absent"
ADDED, REMOVED, CHANGED = "added", "removed", "changed"
SIGNS = {ADDED: "+ ", REMOVED: "- ", CHANGED: "~ ", "": ""}
"""What stands before a name in a picture of two graphs; nothing in that of one, and before what both have."""
Place = tuple[str, str, str | None]
"""(kind, name, port) of a box; the port is None but for stages."""


@dataclass(frozen=True)
class Tensor:
    """A tensor's type as drawn. dims: the shape in numbers. bytes: None without sizes or without a dtype."""

    shape: str
    dims: str | None
    dtype: str
    unit: str | None
    laws: str
    bytes: int | None


@dataclass(frozen=True)
class TensorBox:
    """kind: INPUT, VALUE or OUTPUT. state: PLAIN, OPTIONAL or ABSENT. tensor: None where another box says it.

    change: a key of SIGNS. remarks: on what changed.
    """

    kind: str
    name: str
    tensor: Tensor | None
    state: str
    phase: str
    tip: str
    change: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageBox:
    """A node. ports: name -> state. share: of the sum of all stages, 0 to 1. A skipped stage has no ports.

    change: a key of SIGNS. remarks: on what changed, or whose work it does.
    """

    id: str
    stage: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    phase: str
    tip: str
    backend: str = ""
    latency_ms: float | None = None
    share: float | None = None
    skipped: bool = False
    change: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def measured(self) -> str:
        """``triton · 1.21 ms · 48 %``, as much of it as is known."""
        time = None if self.latency_ms is None else duration(self.latency_ms)
        share = None if self.share is None else f"{100 * self.share:.0f} %"
        return " · ".join(part for part in (self.backend, time, share) if part)


@dataclass(frozen=True)
class Arrow:
    """An arrow from tail to head. state: PLAIN, OPTIONAL or ABSENT. bytes: of what it carries, where known.

    change: a key of SIGNS.
    """

    tail: Place
    head: Place
    state: str
    bytes: int | None
    tip: str
    change: str = ""

    @property
    def stem(self) -> bool:
        """Whether it only leads to a value's label."""
        return self.head[0] == VALUE


@dataclass(frozen=True)
class Picture:
    """facts: lines of what is known of sizes and dtype, and of the total time."""

    name: str
    summary: str
    facts: tuple[str, ...]
    tensors: tuple[TensorBox, ...]
    stages: tuple[StageBox, ...]
    arrows: tuple[Arrow, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """The kinds of change that there are."""
        found = {each.change for each in (*self.tensors, *self.stages, *self.arrows)}
        return tuple(change for change in SIGNS if change and change in found)

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(stage.phase for stage in self.stages))
