"""A pipeline file as data: every part with the mark where it was written. No names are resolved here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..diagnostics.marks import Mark
from ..maps.formula import Formula


@dataclass(frozen=True)
class Written:
    """A scalar of the file and its place, with that of its key where it has one.

    least: of a chunk length that follows the sequences, whose most is the value.
    """

    value: str | int | float | bool | None
    mark: Mark
    key_mark: Mark | None = None
    least: int | None = None

    @property
    def text(self) -> str:
        """As a file writes it."""
        return str(self.value) if self.least is None else f"{self.least}..{self.value}"


@dataclass(frozen=True)
class InputSpec:
    """One entry of ``inputs``.

    shape: axis names or integers. dtype: io, f32 or int. default: for an absent one. mutates: whether a call writes
    over it. slots: the input that says which row of this one belongs to each sequence.
    """

    name: str
    mark: Mark
    shape: tuple[str, ...]
    shape_mark: Mark
    dtype: str = "io"
    dtype_mark: Mark | None = None
    unit: str | None = None
    unit_mark: Mark | None = None
    where: tuple[Written, ...] = ()
    optional: bool = False
    default: Written | None = None
    mutates: bool = False
    slots: Written | None = None
    doc: str = ""


@dataclass(frozen=True)
class EdgeSpec:
    """``port: source`` under a stage's ``in``. source: ``stage.port`` or a pipeline input; where the file has an
    expression, the output of the entry that it became (edge_expressions.py)."""

    port: str
    port_mark: Mark
    source: str
    source_mark: Mark


@dataclass(frozen=True)
class StageSpec:
    """One entry of ``stages``, or an expression in an edge, which has a formula and its text under use."""

    id: str
    mark: Mark
    use: str
    use_mark: Mark
    edges: tuple[EdgeSpec, ...] = ()
    params: Mapping[str, Written] = field(default_factory=dict)
    recompute: bool = False
    recompute_mark: Mark | None = None
    formula: Formula | None = None


@dataclass(frozen=True)
class OutputSpec:
    """``name: stage.port`` under ``outputs``."""

    name: str
    mark: Mark
    source: str
    source_mark: Mark


@dataclass(frozen=True)
class DefinitionSpec:
    """The op token by token, as written: text lines with their places."""

    mark: Mark
    state: Mapping[str, Written] = field(default_factory=dict)
    let: tuple[Written, ...] = ()
    step: tuple[Written, ...] = ()
    final: Mapping[str, Written] = field(default_factory=dict)
    dense: tuple[Written, ...] = ()

    def mark_in(self, file: str) -> Mark:
        """Where a file says what the op is: in a variant that has lines of its own, the first of them."""
        lines = (*self.state.values(), *self.let, *self.step, *self.final.values(), *self.dense)
        own = [each.mark for each in lines if each.mark.file == file]
        return self.mark if self.mark.file == file or not own else min(own, key=lambda mark: mark.place)


@dataclass(frozen=True)
class PipelineSpec:
    """One file. axes: fixed sizes. params: name -> default expression over the axes.

    bases: each file that it extends, the nearest first -> where that is written. Marks are in any of these files.
    """

    file: str
    mark: Mark
    name: str
    summary: str
    source: str
    axes: Mapping[str, Written]
    inputs: Mapping[str, InputSpec]
    params: Mapping[str, Written]
    constraints: tuple[Written, ...]
    definition: DefinitionSpec | None
    stages: Mapping[str, StageSpec]
    outputs: Mapping[str, OutputSpec]
    bases: Mapping[str, Mark] = field(default_factory=dict)
