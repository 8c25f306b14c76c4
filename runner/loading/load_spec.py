"""A pipeline file to a PipelineSpec: every structural error in one run, each at its place.

The keys stand in spec_keys.py, with the policy of ``schema: pipeline/v1``. Names are not resolved here: whether a
stage or a port exists is the graph's business.
"""

from pathlib import Path

from ..diagnostics.codes import LIMIT, NAME_TWICE, SCHEMA_VERSION
from ..diagnostics.errors import ChunkwiseError, Diagnostic, Note, by_place, quoted
from ..diagnostics.marks import Mark
from .check_keys import check
from .decode_text import read_bytes
from .spec import DefinitionSpec, EdgeSpec, InputSpec, OutputSpec, PipelineSpec, StageSpec, Written
from .spec_keys import FAMILY, PIPELINE, VERSIONS
from .yaml_nodes import Entry, List, Map, Node, Scalar
from .yaml_text import MAX_ERRORS, parse_tree


def read_spec(path: str | Path) -> PipelineSpec:
    """The pipeline of a file. Raises ChunkwiseError with everything that is wrong with it."""
    return parse_spec(read_bytes(path), str(path))


def parse_spec(text: bytes | str, file: str) -> PipelineSpec:
    """The pipeline of a text; file: what errors call it. Raises ChunkwiseError."""
    root, errors = parse_tree(text, file)
    first = Mark(file, root.mark.line, root.mark.column, root.mark.line, root.mark.column + 1, root.mark.text)
    if wrong := version_error(root):
        raise ChunkwiseError(wrong)
    errors += check(root, PIPELINE, "", first)
    errors += names_twice(root)
    if errors:
        raise ChunkwiseError(*first_of(by_place(once(errors))))
    return pipeline(root, file, first)


def once(errors: list[Diagnostic]) -> list[Diagnostic]:
    """errors without those that an alias repeats: the same at the same place, for another part of the file."""
    return list({(each.code, each.mark, each.help): each for each in reversed(errors)}.values())[::-1]


def first_of(errors: list[Diagnostic]) -> list[Diagnostic]:
    """The first MAX_ERRORS, and how many more there are."""
    more = len(errors) - MAX_ERRORS
    return errors if more <= 0 else [*errors[:MAX_ERRORS], Diagnostic(LIMIT, f"{more:,} more errors are not shown")]


def version_error(root: Node) -> Diagnostic | None:
    """An error if the file follows another format; then nothing else in it is worth a word."""
    node = entries(root).get("schema")
    if node is None or not isinstance(node.value, Scalar) or node.value.text in VERSIONS:
        return None
    text, read = node.value.text, " and ".join(VERSIONS)
    if text.startswith(f"{FAMILY}/"):
        message, help = f"the file follows {quoted(text)}, and this build reads {read}", "update chunkwise"
    else:
        message, help = f"{quoted(text)} is not the format of a pipeline", f"write schema: {VERSIONS[-1]}"
    return Diagnostic(SCHEMA_VERSION, message, node.value.mark, help=help)


def entries(node: Node | None, key: str | None = None) -> dict[str, Entry]:
    """The entries of a mapping, or of the mapping under key; none where it is no mapping."""
    if key is not None:
        entry = entries(node).get(key)
        node = entry.value if entry else None
    return dict(node.entries) if isinstance(node, Map) else {}


def names_twice(root: Node) -> list[Diagnostic]:
    """Names that one expression, or one edge, could take for two things."""
    inputs = [(name, "an input", entry.key.mark) for name, entry in entries(root, "inputs").items()]
    params = [(name, "a parameter", entry.key.mark) for name, entry in entries(root, "params").items()]
    stages = [(name, "a stage", entry.key.mark) for name, entry in entries(root, "stages").items()]
    in_expressions = [*axis_names(root), *inputs, *params]
    return by_place([*collisions(in_expressions), *collisions([*inputs, *stages])])


def axis_names(root: Node) -> list[tuple[str, str, Mark]]:
    """Every axis that the file names, where it is first written."""
    found = {name: entry.key.mark for name, entry in entries(root, "axes").items()}
    for entry in entries(root, "inputs").values():
        shape = entries(entry.value)["shape"].value if "shape" in entries(entry.value) else entry.value
        if isinstance(shape, Scalar) and shape.verbatim:
            for axis in shape.text.split():
                start = shape.text.index(axis)
                found.setdefault(axis, shape.mark.within(start, start + len(axis)))
    return [(name, "an axis", mark) for name, mark in found.items()]


def collisions(names: list[tuple[str, str, Mark]]) -> list[Diagnostic]:
    errors, first = [], {}
    for name, kind, mark in sorted(names, key=lambda each: each[2].place):
        earlier_kind, earlier = first.setdefault(name, (kind, mark))
        if earlier_kind != kind:
            note = Note(f"{name} is {earlier_kind} here", earlier)
            message = f"{name} is {kind}, and {earlier_kind} too"
            errors.append(Diagnostic(NAME_TWICE, message, mark, (note,), "rename one of the two"))
    return errors


def pipeline(root: Map, file: str, mark: Mark) -> PipelineSpec:
    """The spec of a tree in which no error was found."""
    top = entries(root)
    definition = top.get("definition")
    return PipelineSpec(
        file=file,
        mark=mark,
        name=text(top, "name"),
        summary=text(top, "summary"),
        source=text(top, "source"),
        axes=written_map(root, "axes"),
        inputs={name: input_spec(entry) for name, entry in entries(root, "inputs").items()},
        params=written_map(root, "params"),
        constraints=written_list(root, "constraints"),
        definition=definition_spec(definition) if definition else None,
        stages={name: stage_spec(entry) for name, entry in entries(root, "stages").items()},
        outputs={name: output_spec(entry) for name, entry in entries(root, "outputs").items()},
    )


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
