"""Where the size of an axis comes from: the file, the inputs, a rule."""

from collections.abc import Iterable

from ..diagnostics.marks import Mark
from ..loading.spec import InputSpec
from .answer import Line
from .facts import Facts


def fixed_axis(facts: Facts, axis: str) -> Line:
    """An axis of the file's ``axes``, or what --axes put over it."""
    written = facts.op.spec.axes[axis]
    in_file = (written.mark.source or "")[written.mark.column - 1 : written.mark.end_column - 1]
    over = "" if in_file in (str(written.value), written.text) else f", and --axes puts {written.value} in its place"
    return Line(f"{axis} = {in_file or written.value}: from axes{over}", written.key_mark, axis)


def derived(facts: Facts, axis: str) -> tuple[str, tuple[str, ...]] | None:
    """How NT and N follow from other sizes, in words with the numbers; what they follow from."""
    sizes = facts.sizes
    if axis == "NT" and {"T", "C", "NT"} <= sizes.keys():
        T, C, N, NT = sizes["T"], sizes["C"], sizes["N"], sizes["NT"]
        if facts.packed:
            rule = f"NT = (T + N (C - 1)) // C = ({T} + {N} * {C - 1}) // {C} = {NT}, room for any {N} lengths"
            return rule, ("T", "N", "C")
        return f"NT = ceil(T / C) = ceil({T} / {C}) = {NT}", ("T", "C")
    if axis == "N" and "N" in sizes:
        N = sizes["N"]
        return (f"N = {N}, the lengths given over T", ("T",)) if facts.packed else (f"N = B = {N}", ("B",))
    return None


def axis_sources(facts: Facts, axis: str) -> list[Line]:
    """The fixed size, the inputs that have the axis, or the rule that it follows from."""
    spec = facts.op.spec
    lines = [fixed_axis(facts, axis)] if axis in spec.axes else []
    for entry in spec.inputs.values():
        if axis in entry.shape:
            lines.append(Line(f"{entry.name} has the axis {axis}", axis_mark(entry, axis), axis, (entry.name,)))
    if rule := derived(facts, axis):
        text, because = rule
        before = [line for each in because for line in axis_sources(facts, each)]
        return [*lines, *before, Line(f"so {text}", first_place(facts, (axis, *reversed(because))), axis, because)]
    if axis in facts.sizes and axis not in spec.axes:
        lines.append(Line(f"so {axis} = {facts.sizes[axis]}, the size asked about", first_place(facts, [axis]), axis))
    return lines


def axis_mark(entry: InputSpec, axis: str) -> Mark:
    """The axis inside the shape as it is written."""
    mark, start = entry.shape_mark, 0
    text = (mark.source or "")[mark.column - 1 : mark.end_column - 1]
    for word in text.split():
        start = text.index(word, start)
        if word == axis:
            return mark.within(start, start + len(word))
        start += len(word)
    return mark


def first_place(facts: Facts, axes: Iterable[str]) -> Mark | None:
    """Where the file first writes one of the axes, the first of them that it does write."""
    spec = facts.op.spec
    for axis in axes:
        marks = [spec.axes[axis].key_mark] if axis in spec.axes else []
        marks += [axis_mark(entry, axis) for entry in spec.inputs.values() if axis in entry.shape]
        if marks:
            return marks[0]
    return None
