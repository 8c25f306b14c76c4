"""Names that stand for two things."""

from collections.abc import Sequence

from ..diagnostics.codes import NAME_TWICE
from ..diagnostics.errors import Diagnostic, Note, by_place
from ..diagnostics.marks import Mark
from .yaml_nodes import Node, Scalar, entries


def names_twice(root: Node, files: Sequence[str]) -> list[Diagnostic]:
    """Names that one expression, or one edge, could take for two things. files: in the order in which they are read."""
    inputs = [(name, "an input", entry.key.mark) for name, entry in entries(root, "inputs").items()]
    params = [(name, "a parameter", entry.key.mark) for name, entry in entries(root, "params").items()]
    stages = [(name, "a stage", entry.key.mark) for name, entry in entries(root, "stages").items()]
    in_expressions = [*axis_names(root), *inputs, *params]
    return by_place([*collisions(in_expressions, files), *collisions([*inputs, *stages], files)])


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


def collisions(names: list[tuple[str, str, Mark]], files: Sequence[str]) -> list[Diagnostic]:
    errors, first = [], {}
    for name, kind, mark in sorted(names, key=lambda each: (files.index(each[2].file), *each[2].place)):
        earlier_kind, earlier = first.setdefault(name, (kind, mark))
        if earlier_kind != kind:
            note = Note(f"{name} is {earlier_kind} here", earlier)
            message = f"{name} is {kind}, and {earlier_kind} too"
            errors.append(Diagnostic(NAME_TWICE, message, mark, (note,), "rename one of the two"))
    return errors
