"""The tree of a YAML text: scalars, mappings and lists, each with its place."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..diagnostics.marks import Mark


@dataclass(frozen=True, eq=False)
class Scalar:
    """value: as the core schema reads it. text: its characters.

    verbatim: the file holds these very characters at mark, so that ``mark.within`` is exact. For a quoted scalar
    the mark is then the part between the quotes.
    """

    mark: Mark
    value: str | int | float | bool | None
    text: str
    verbatim: bool


@dataclass(frozen=True, eq=False)
class Entry:
    key: Scalar
    value: "Node"


@dataclass(frozen=True, eq=False)
class Map:
    """entries: key text -> entry, in the file's order."""

    mark: Mark
    entries: Mapping[str, Entry]


@dataclass(frozen=True, eq=False)
class List:
    mark: Mark
    items: tuple["Node", ...]


Node = Scalar | Map | List


def entries(node: Node | None, key: str | None = None) -> dict[str, Entry]:
    """The entries of a mapping, or of the mapping under key; none where it is no mapping."""
    if key is not None:
        entry = entries(node).get(key)
        node = entry.value if entry else None
    return dict(node.entries) if isinstance(node, Map) else {}


def count(node: Node) -> int:
    """How many nodes a tree holds, aliases written out."""
    if isinstance(node, Map):
        return 1 + sum(1 + count(entry.value) for entry in node.entries.values())
    return 1 + sum(map(count, node.items)) if isinstance(node, List) else 1


def is_cut(node: Node) -> bool:
    """Whether a text opens more parentheses than it closes."""
    return isinstance(node, Scalar) and node.text.count("(") > node.text.count(")")


def together(first: Scalar, last: Scalar) -> Scalar:
    """The text from first to last, as it stands in the file if both are on one line."""
    one_line = first.mark.line == last.mark.end_line and first.verbatim and last.verbatim
    text = first.mark.source[first.mark.column - 1 : last.mark.end_column - 1] if one_line else ""
    text = text or f"{first.text}, {last.text}"
    mark = replace(first.mark, end_line=last.mark.end_line, end_column=last.mark.end_column)
    return Scalar(mark, text, text, one_line)
