"""A pipeline file to a PipelineSpec: every structural error in one run, each at its place.

The keys stand in spec_keys.py, with the policy of ``schema: pipeline/v1``. Names are not resolved here: whether a
stage or a port exists is the graph's business.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..diagnostics.marks import Mark
from .check_keys import first_character
from .decode_text import read_bytes
from .edge_expressions import with_entries
from .extend import whole_tree
from .spec import DefinitionSpec, EdgeSpec, InputSpec, OutputSpec, PipelineSpec, StageSpec, Written
from .spec_keys import chunk_lengths
from .yaml_nodes import Entry, List, Map, Node, Scalar, entries


def read_spec(path: str | Path) -> PipelineSpec:
    """The pipeline of a file. Raises ChunkwiseError with everything that is wrong with it."""
    return parse_spec(read_bytes(path), str(path))


def parse_spec(text: bytes | str, file: str) -> PipelineSpec:
    """The pipeline of a text; file: what errors call it. Raises ChunkwiseError."""
    return with_entries(written_spec(text, file))


def written_spec(text: bytes | str, file: str) -> PipelineSpec:
    """parse_spec, with expressions in edges as they are written."""
    whole = whole_tree(text, file)
    return pipeline(whole.root, file, whole.bases)


def pipeline(root: Map, file: str, bases: Mapping[str, Mark]) -> PipelineSpec:
    """The spec of a tree in which no error was found."""
    top = entries(root)
    definition = top.get("definition")
    return PipelineSpec(
        file=file,
        mark=first_character(root),
        name=text(top, "name"),
        summary=text(top, "summary"),
        source=text(top, "source"),
        axes={name: axis(each) for name, each in written_map(root, "axes").items()},
        inputs={name: input_spec(entry) for name, entry in entries(root, "inputs").items()},
        params=written_map(root, "params"),
        constraints=written_list(root, "constraints"),
        definition=definition_spec(definition) if definition else None,
        stages={name: stage_spec(entry) for name, entry in entries(root, "stages").items()},
        outputs={name: output_spec(entry) for name, entry in entries(root, "outputs").items()},
        bases=bases,
    )


def axis(written: Written) -> Written:
    """A size, or the chunk length's least and most."""
    if not isinstance(written.value, str):
        return written
    least, most = chunk_lengths(written.value)
    return replace(written, value=most, least=least)


def input_spec(entry: Entry) -> InputSpec:
    name, mark = entry.key.text, entry.key.mark
    if isinstance(entry.value, Scalar):
        return InputSpec(name, mark, tuple(entry.value.text.split()), entry.value.mark)
    keys = entries(entry.value)
    return InputSpec(
        name,
        mark,
        shape=tuple(text(keys, "shape").split()),
        shape_mark=keys["shape"].value.mark,
        dtype=text(keys, "dtype") or "io",
        dtype_mark=keys["dtype"].value.mark if "dtype" in keys else None,
        unit=text(keys, "unit") or None,
        unit_mark=keys["unit"].value.mark if "unit" in keys else None,
        where=written_list(entry.value, "where"),
        optional=flag(keys, "optional"),
        default=written(keys["default"].value) if "default" in keys else None,
        mutates=flag(keys, "mutates"),
        slots=written(keys["slots"].value) if "slots" in keys else None,
        doc=text(keys, "doc"),
    )


def stage_spec(entry: Entry) -> StageSpec:
    keys = entries(entry.value)
    edges = [
        EdgeSpec(port, edge.key.mark, edge.value.text, edge.value.mark)
        for port, edge in entries(entry.value, "in").items()
    ]
    return StageSpec(
        id=entry.key.text,
        mark=entry.key.mark,
        use=text(keys, "use"),
        use_mark=keys["use"].value.mark,
        edges=tuple(edges),
        params=written_map(entry.value, "with"),
        recompute=flag(keys, "recompute"),
        recompute_mark=keys["recompute"].key.mark if "recompute" in keys else None,
    )


def output_spec(entry: Entry) -> OutputSpec:
    return OutputSpec(entry.key.text, entry.key.mark, entry.value.text, entry.value.mark)


def definition_spec(entry: Entry) -> DefinitionSpec:
    node = entry.value
    return DefinitionSpec(
        mark=entry.key.mark,
        state=written_map(node, "state"),
        let=written_list(node, "let"),
        step=written_list(node, "step"),
        final=written_map(node, "final"),
        dense=written_list(node, "dense"),
    )


def text(keys: dict[str, Entry], key: str) -> str:
    return keys[key].value.text if key in keys else ""


def flag(keys: dict[str, Entry], key: str) -> bool:
    return key in keys and keys[key].value.value


def written(node: Scalar) -> Written:
    return Written(node.value, node.mark)


def written_map(node: Node, key: str) -> dict[str, Written]:
    return {
        name: Written(entry.value.value, entry.value.mark, entry.key.mark) for name, entry in entries(node, key).items()
    }


def written_list(node: Node, key: str) -> tuple[Written, ...]:
    """The scalars of a list under key, or the one scalar that stands for it."""
    entry = entries(node).get(key)
    if entry is None:
        return ()
    items = entry.value.items if isinstance(entry.value, List) else (entry.value,)
    return tuple(written(item) for item in items)
