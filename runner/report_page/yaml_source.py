"""The text of a pipeline, line by line, each line with the stages that it made."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..graphs.graph import Graph


@dataclass(frozen=True)
class Line:
    """id: of the page. nodes: those whose stage is written here, in the graph's order."""

    number: int
    text: str
    id: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class SourceFile:
    """name: without its folder, so that the page does not depend on the machine."""

    name: str
    lines: tuple[Line, ...]


def source_files(graphs: Iterable[Graph], prefix: str) -> list[SourceFile]:
    """The files of a pipeline that its graphs' stages stand in: more than one where it extends another. prefix: of the
    lines' ids."""
    made: dict[str, dict[int, dict[str, None]]] = {}
    text: dict[str, str] = {}
    for graph in graphs:
        for node in graph.nodes.values():
            if node.mark and node.mark.text:
                text[node.mark.file] = node.mark.text
                made.setdefault(node.mark.file, {}).setdefault(node.mark.line, {})[node.id] = None
    files = enumerate(text.items(), start=1)
    return [SourceFile(Path(file).name, lines_of(each, made[file], f"{prefix}-f{n}")) for n, (file, each) in files]


def lines_of(text: str, made: dict[int, dict[str, None]], prefix: str) -> tuple[Line, ...]:
    lines = enumerate(text.splitlines(), start=1)
    return tuple(Line(number, line, f"{prefix}-l{number}", tuple(made.get(number, ()))) for number, line in lines)


def made_by(files: Iterable[SourceFile]) -> dict[str, Line]:
    """Node id -> the line that made it."""
    return {node: line for file in files for line in file.lines for node in line.nodes}
