"""A spec as the text of a file that stands on its own, each line of a variant with the place where it was written."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from ..diagnostics.marks import Mark
from .spec import DefinitionSpec, EdgeSpec, InputSpec, PipelineSpec, StageSpec, Written
from .spec_keys import VERSIONS
from .yaml_scalars import resolve

WIDTH = 100
PLAIN = re.compile(r"[A-Za-z0-9_(.-]([^\n\r\t#\"]*[^\s:\"#])?")


@dataclass(frozen=True)
class Line:
    """A line of the text and the marks of what it holds."""

    text: str
    marks: Sequence[Mark] = ()


def spec_text(spec: PipelineSpec) -> str:
    """The text of a file with the same spec. Its lines name their files where they are not the first base's."""
    files = [spec.file, *spec.bases]
    result = [f"# {line}" for line in heading(files)] if spec.bases else []
    for line in lines_of(spec):
        places = {(files.index(mark.file), mark.line) for mark in line.marks if mark.file != files[-1]}
        origin = ", ".join(f"{Path(files[file]).name}:{number}" for file, number in sorted(places, reverse=True))
        result.append(f"{line.text}  # {origin}" if origin else line.text)
    return "\n".join([*result, ""])


def heading(files: Sequence[str]) -> list[str]:
    first, *others = [Path(file).name for file in files]
    chain = ", which extends ".join([first, *others])
    return wrap(f"{chain}. Lines that name no file are from {others[-1]}.", WIDTH)


def lines_of(spec: PipelineSpec) -> Iterable[Line]:
    yield Line(f"schema: {VERSIONS[-1]}")
    for key in ("name", "summary", "source"):
        if getattr(spec, key):
            yield Line(f"{key}: {scalar(getattr(spec, key), flow=False)}")
    yield from flow_line("axes", spec.axes)
    yield Line("inputs:")
    yield from aligned({name: input_text(entry) for name, entry in spec.inputs.items()}, spec.inputs, input_marks)
    yield from flow_line("params", spec.params)
    yield from list_lines("constraints", spec.constraints, "")
    if spec.definition:
        yield from definition_lines(spec.definition)
    yield Line("stages:")
    width = max(len(entry.use) for entry in spec.stages.values())
    texts = {name: stage_text(entry, width) for name, entry in spec.stages.items()}
    yield from aligned(texts, spec.stages, stage_marks)
    outputs = {name: output.source for name, output in spec.outputs.items()}
    marks = [mark for output in spec.outputs.values() for mark in (output.mark, output.source_mark)]
    yield Line(f"outputs: {flow(outputs)}", marks)


def aligned(texts: Mapping[str, str], entries: Mapping, marks_of) -> Iterable[Line]:
    """An entry a line, their values in one column."""
    width = max(map(len, texts)) + 2
    for name, text in texts.items():
        yield Line(f"  {name + ':':{width}}{text}", marks_of(entries[name]))


def definition_lines(definition: DefinitionSpec) -> Iterable[Line]:
    yield Line("definition:")
    yield from flow_line("  state", definition.state)
    for key in ("let", "step", "dense"):
        yield from list_lines(f"  {key}", getattr(definition, key), "  ")
    yield from flow_line("  final", definition.final)


def flow_line(key: str, written: Mapping[str, Written]) -> Iterable[Line]:
    if written:
        marks = [mark for each in written.values() for mark in (each.mark, each.key_mark) if mark]
        values = {name: each.value if each.least is None else each.text for name, each in written.items()}
        yield Line(f"{key}: {flow(values)}", marks)


def list_lines(key: str, written: Sequence[Written], indent: str) -> Iterable[Line]:
    if written:
        yield Line(f"{key}:")
        for each in written:
            yield Line(f"{indent}  - {scalar(each.value, flow=False)}", [each.mark])


# --- entries


def input_text(entry: InputSpec) -> str:
    laws = [law.value for law in entry.where]
    parts = {
        "dtype": entry.dtype if entry.dtype_mark else None,
        "unit": entry.unit,
        "where": laws[0] if len(laws) == 1 else laws or None,
        "optional": entry.optional or None,
        "default": entry.default.value if entry.default else None,
        "mutates": entry.mutates or None,
        "slots": entry.slots.value if entry.slots else None,
        "doc": entry.doc or None,
    }
    written = {key: value for key, value in parts.items() if value is not None}
    shape = " ".join(entry.shape)
    return flow({"shape": shape, **written}) if written else scalar(shape, flow=False)


def input_marks(entry: InputSpec) -> list[Mark]:
    return [entry.mark, entry.shape_mark]


def stage_text(entry: StageSpec, width: int) -> str:
    parts = {
        "in": {edge.port: edge.source for edge in entry.edges},
        "with": {name: written.value for name, written in entry.params.items()},
        "recompute": entry.recompute,
    }
    rest = flow({key: value for key, value in parts.items() if value})
    use = scalar(entry.use, flow=True)
    return f"{{use: {use + ',':{width + 1}} {rest[1:]}" if rest != "{}" else f"{{use: {use}}}"


def stage_marks(entry: StageSpec) -> list[Mark]:
    return [entry.mark, entry.use_mark, *edge_marks(entry.edges), *(each.mark for each in entry.params.values())]


def edge_marks(edges: Iterable[EdgeSpec]) -> list[Mark]:
    return [mark for edge in edges for mark in (edge.port_mark, edge.source_mark)]


# --- YAML


def flow(value) -> str:
    """A mapping, list or scalar on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {flow(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value, flow=True)


def scalar(value: str | int | float | bool, flow: bool) -> str:
    """A text plain where it reads back as itself, else in quotes, with escapes only where it must have them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    plain = PLAIN.fullmatch(value) and ": " not in value and isinstance(resolve(value), str)
    if plain and not value.startswith("- ") and value != "-" and not (flow and re.search(r"[,\[\]{}]", value)):
        return value
    return f'"{value}"' if value.isprintable() and not re.search(r'["\\]', value) else json.dumps(value)
