"""The text of a pipeline: the file it came from, with the stages that were found and why each is there."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from ...stages._units import UNITS
from ..diagnostics.marks import Mark
from ..loading.spec import PipelineSpec
from ..loading.yaml_nodes import entries
from ..loading.yaml_text import parse_tree
from .feeding import Found, Step
from .matching import STATES, Truths

WIDTH = 118
CHUNK = 64
"""The chunk length of a file that names none."""


def pipeline_text(
    spec: PipelineSpec, steps: Sequence[Step], goals: Mapping[str, Found], truths: Truths, notes: Sequence[str] = ()
) -> str:
    """The file's own text under its new name, then stages and outputs. notes: lines to stand before the stages."""
    ids = stage_ids(spec, steps, truths)
    sources = {value.id: in_flow(value.value.name) for value in leaves(steps, goals.values())}
    for step in steps:
        for port, value in step.outputs.items():
            if step in value.ways:
                sources.setdefault(value.id, f"{ids[step.id]}.{port}")
    ends = [each for goal in goals.values() for each in goal.operands or (goal,)]
    read = {each.id for step in steps for each in step.inputs.values() if each} | {each.id for each in ends}
    lines = [*commented(notes, ""), "stages:"]
    wide, long = max(map(len, ids.values())), max(len(step.stage.name) for step in steps)
    for step in steps:
        lines += commented(reasons(step, read, goals, truths), "  ")
        lines.append(stage_line(step, ids[step.id], sources, wide, long))
    outputs = ", ".join(f"{name}: {source(value, sources)}" for name, value in goals.items())
    chunked = any(not {"C", "NT"}.isdisjoint(step.stage.axis_names) for step in steps)
    return "\n".join([head(spec, chunked), *lines, f"outputs: {{{outputs}}}"]) + "\n"


def leaves(steps: Sequence[Step], goals: Iterable[Found]) -> list[Found]:
    """What is read and no stage makes: the file's inputs, and expressions over them."""
    ends = [each for goal in goals for each in goal.operands or (goal,)]
    return [each for each in [*(x for step in steps for x in step.inputs.values() if x), *ends] if not each.ways]


def source(value: Found, sources: Mapping[int, str]) -> str:
    """What an output is, as the file has it."""
    if not value.operands:
        return sources[value.id]
    return in_flow("".join(part if isinstance(part, str) else sources[part.id] for part in value.parts))


def head(spec: PipelineSpec, chunked: bool) -> str:
    """The text of the file, under the new name, without its outputs, and with a chunk length if stages need one."""
    text = spec.mark.text.replace("\r\n", "\n").replace("\r", "\n")
    top, lines = entries(parse_tree(text, spec.file)[0]), text.split("\n")
    edits = []
    if "name" in top:
        edits.append(replaced(top["name"].value.mark, spec.name))
    else:
        edits.append(inserted(top["schema"].value.mark, lines, f"name: {spec.name}", after=True))
    if "outputs" in top:
        first, last = top["outputs"].key.mark, top["outputs"].value.mark
        edits.append((first.line, last.end_line, []))
    if chunked and "C" not in spec.axes:
        edits.append(inserted(top["inputs"].key.mark, lines, f"axes: {{C: {CHUNK}}}", after=False))
    for first, last, new in sorted(edits, reverse=True):
        lines[first - 1 : last] = new
    return "\n".join(lines).rstrip("\n")


def replaced(mark: Mark, text: str) -> tuple[int, int, list[str]]:
    line = mark.source
    return mark.line, mark.line, [line[: mark.column - 1] + text + line[mark.end_column - 1 :]]


def inserted(mark: Mark, lines: Sequence[str], text: str, after: bool) -> tuple[int, int, list[str]]:
    line = lines[mark.line - 1]
    return mark.line, mark.line, [line, text] if after else [text, line]


def stage_ids(spec: PipelineSpec, steps: Sequence[Step], truths: Truths) -> dict[int, str]:
    """Step -> its entry's name: that of the value in the definition if it has one, else the stage's."""
    taken, ids = {*spec.inputs, *spec.params, *spec.axes, "cu_seqlens"}, {}
    for step in steps:
        names = [name for name in (target_of(value, truths) for value in step.outputs.values()) if name]
        free = [name for name in (*names, step.stage.name) if name not in taken]
        base, number = step.stage.name, 2
        while not free:
            free, number = [f"{base}_{number}"] if f"{base}_{number}" not in taken else [], number + 1
        ids[step.id] = free[0]
        taken.add(free[0])
    return ids


def target_of(value: Found, truths: Truths) -> str | None:
    """The name that a line of the definition gives the value, if it is no output."""
    reading = truths.reading(value.value, value.x)
    named = [
        each.target
        for each, _ in truths.case.known
        if reading is not None and each.target and each.text == reading.text and each.target not in truths.case.outputs
    ]
    return named[0] if named else None


def stage_line(step: Step, id: str, sources: Mapping[int, str], wide: int, long: int) -> str:
    edges = ", ".join(f"{port}: {sources[value.id]}" for port, value in step.inputs.items() if value)
    bound = ", ".join(f"{name}: {in_flow(text)}" for name, text in step.params.items())
    params = f", with: {{{bound}}}" if bound else ""
    rebuilt = ", recompute: true" if holds_states(step) else ""
    return f"  {id + ':':{wide + 1}} {{use: {step.stage.name + ',':{long + 1}} in: {{{edges}}}{params}{rebuilt}}}"


def holds_states(step: Step) -> bool:
    """Whether a stage gives a state for every chunk: more than backward should keep."""
    return any(value.value.unit == STATES[0] for value in step.outputs.values())


def in_flow(text: str) -> str:
    """A text as an entry of a flow mapping: in quotes where YAML would read it otherwise."""
    return f'"{text}"' if set(text) & set(",:#{}[]") else text


def reasons(step: Step, read: set[int], goals: Mapping[str, Found], truths: Truths) -> list[str]:
    """What each output that is read stands for."""
    meanings = {
        port: meaning(step, port, value, goals, truths) for port, value in step.outputs.items() if value.id in read
    }
    return [
        words if words.startswith((f"{port} ", f"{port}[")) else f"{port}: {words}" for port, words in meanings.items()
    ]


def meaning(step: Step, port: str, value: Found, goals: Mapping[str, Found], truths: Truths) -> str:
    outputs = "".join(f", the output {name}" for name, goal in goals.items() if goal is value)
    unit, match = value.value.unit, truths.match(value.value, value.x)
    if match is not None:
        return f"{match.words}{plain(match.reading.text)}{outputs}"
    state = truths.state(value.value, value.x) if unit in STATES else None
    if state is not None:
        words = "as it enters each chunk, rebuilt for backward" if unit == STATES[0] else "after the last token"
        return f"{state} {words}{outputs}"
    return (UNITS.get(unit) or step.stage.contract.outputs[port].doc or "for the stages below") + outputs


def plain(text: str) -> str:
    """An expression without parentheses around all of it."""
    depth = 0
    for at, each in enumerate(text):
        depth += (each == "(") - (each == ")")
        if depth == 0 and at < len(text) - 1:
            return text
    return plain(text[1:-1]) if text.startswith("(") else text


def commented(lines: Sequence[str], indent: str) -> list[str]:
    return [f"{indent}# {part}" for line in lines for part in textwrap.wrap(line, WIDTH - len(indent) - 2) or [""]]
