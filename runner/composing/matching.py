"""Which of a definition's values a stage's output is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from ..definition.types import HEADS, LANES, inner
from ..graphs.graph import Value
from .readings import Reading
from .tiny_case import TinyCase

TOLERANCE = 1e-9
STATES = ("state/chunk_entry", "state/sequence_end")
"""Units of values that claim to be a state of the definition."""


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Equal but for rounding in float64."""
    return (
        x.shape == y.shape and bool((x - y).abs().max() <= TOLERANCE * (y.abs().max() + 1e-300)) if x.numel() else True
    )


def proportional(x: torch.Tensor, y: torch.Tensor) -> bool:
    """x = c y for a number c other than 0."""
    if x.shape != y.shape:
        return False
    factor = ((x * y).sum() / (y * y).sum()).item()
    return factor != 0 and same(x, factor * y)


@dataclass(frozen=True)
class Match:
    """words: what a value is to the reading, to stand before the reading's text; empty where it is the reading."""

    reading: Reading
    words: str


@dataclass(frozen=True)
class SideBySide:
    """The readings of one shape and their values, stacked: a value is held against all of them at once."""

    readings: tuple[Reading, ...]
    values: torch.Tensor
    allowed: torch.Tensor

    def equal(self, x: torch.Tensor) -> list[Reading]:
        """Those whose value is ``same`` as x."""
        if not x.numel():
            return list(self.readings)
        found = (self.values - x).abs().flatten(1).amax(1) <= self.allowed
        return [reading for reading, is_same in zip(self.readings, found.tolist()) if is_same]


def side_by_side(known: Iterable[tuple[Reading, torch.Tensor]]) -> dict[tuple, SideBySide]:
    """By inner axes and shape."""
    groups: dict[tuple, list] = {}
    for reading, x in known:
        groups.setdefault((reading.axes, x.shape), []).append((reading, x))
    found = {}
    for key, group in groups.items():
        values = torch.stack([x for _, x in group])
        allowed = TOLERANCE * (values.abs().flatten(1).amax(1) + 1e-300) if values.numel() else values.flatten(1)
        found[key] = SideBySide(tuple(reading for reading, _ in group), values, allowed)
    return found


class Truths:
    """What the definition says of a value, by its axes and unit."""

    def __init__(self, case: TinyCase):
        self.case = case
        C, T = case.sizes["C"], case.sizes.get("T", 1)
        self.chunk_entries = {name: x[:, 0:T:C] for name, x in case.entries.items()}
        self.known = side_by_side(case.known)

    def reading(self, value: Value, x: torch.Tensor) -> Reading | None:
        """The reading that is this value, or whose logarithm it is where its unit says so; a direct one first."""
        match = self.match(value, x)
        return match.reading if match else None

    def match(self, value: Value, x: torch.Tensor) -> "Match | None":
        rows = self.by_token(value, x)
        if rows is None:
            return None
        axes = inner(map(str, value.axes))
        forms = {"": rows}
        if (value.unit or "").startswith("log_decay/"):
            forms |= {"the natural logarithm of ": rows.exp(), "the base-2 logarithm of ": rows.exp2()}
        known = self.known.get((axes, rows.shape))
        matches = [Match(each, words) for words, form in forms.items() for each in known.equal(form)] if known else []
        return min(matches, key=lambda match: not match.reading.direct, default=None)

    def by_token(self, value: Value, x: torch.Tensor) -> torch.Tensor | None:
        """[B, T, heads, inner axes...], as the definition's evaluation lays values out; None for what has no such
        form."""
        names = [str(axis) for axis in value.axes]
        if not {"C", "NT", "N"}.isdisjoint(names):
            return None
        heads = [axis for axis in names if axis in HEADS]
        lanes = [axis for axis in LANES if axis in names]
        if len(heads) > 1:
            return None
        rest = [at for at, axis in enumerate(names) if axis not in heads and axis not in lanes]  # K K has both
        x = x.permute([*(names.index(axis) for axis in (*lanes, *heads)), *rest])
        for at, axis in enumerate(("B", "T")):
            x = x if axis in names else x.unsqueeze(at)
        x = x if heads else x.unsqueeze(2)
        sizes, head = self.case.sizes, self.case.head
        count = sizes[head] if head else 1
        if count % x.shape[2]:
            return None
        x = x.repeat_interleave(count // x.shape[2], dim=2)
        return x.expand(sizes.get("B", 1), sizes.get("T", 1), *x.shape[2:])

    def is_state(self, value: Value, x: torch.Tensor) -> bool | None:
        """Whether a value that claims to be a state is one of the definition's; None if it claims nothing."""
        return self.state(value, x) is not None if value.unit in STATES else None

    def state(self, value: Value, x: torch.Tensor) -> str | None:
        """The name of the definition's state that a value is, up to a factor and a transposition."""
        truths = {"state/chunk_entry": self.chunk_entries, "state/sequence_end": self.case.ends}[value.unit]
        laid_out = self.laid_out(truths, value)
        return next((name for name, each in laid_out.items() if proportional(x, each)), None)

    def laid_out(self, states: Mapping[str, torch.Tensor], value: Value) -> dict[str, torch.Tensor]:
        """The states that have the value's axes, in the value's order."""
        own, found = [axis for axis in map(str, value.axes) if axis not in ("B", "N", "NT") and axis not in HEADS], {}
        for name, x in states.items():
            axes = list(self.case.readings.state_axes[name])
            if axes == own:  # a square state too, whose axes have one name
                found[name] = x
            elif sorted(axes) == sorted(own) and len(set(axes)) == len(axes):
                lead = x.dim() - len(axes)
                found[name] = x.permute([*range(lead), *(lead + axes.index(axis) for axis in own)])
        return found

    def outputs_of(self, value: Value, x: torch.Tensor) -> list[str]:
        """The outputs of the op that this value is."""
        axes = tuple(map(str, value.axes))
        return [
            name
            for name, truth in self.case.outputs.items()
            if truth is not None and self.case.output_axes[name] == axes and same(x, truth)
        ]
