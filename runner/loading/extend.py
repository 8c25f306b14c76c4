"""A file and those that it extends, as one tree: each read and checked, then laid over the one that it extends.

``extends`` is a name, never a path: of a pipeline that ships, or of a file beside the one that extends it. The limits
of one file hold for all of them together.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..diagnostics.codes import BASE_CYCLE, LIMIT, UNKNOWN_BASE
from ..diagnostics.errors import ChunkwiseError, Diagnostic, Note
from ..diagnostics.hints import nearest
from ..diagnostics.marks import Mark
from .decode_text import MAX_BYTES, read_bytes
from .merge_trees import merged
from .pipelines import bases_of, names
from .read_tree import pipeline_errors, read_tree, refusal
from .variant_keys import is_variant
from .yaml_nodes import Map, Scalar, count, entries
from .yaml_text import MAX_NODES

MOST_FILES = 8


@dataclass(frozen=True)
class Whole:
    """root: the tree of a pipeline. bases: each file that was extended, the nearest first -> where that is written."""

    root: Map
    bases: Mapping[str, Mark]


def whole_tree(text: bytes | str, file: str) -> Whole:
    """The tree of a text with all that it extends. Raises ChunkwiseError."""
    trees, bases = [read_tree(text, file)], {}
    size = len(text)
    while is_variant(trees[-1]):
        name = entries(trees[-1])["extends"].value
        path = base_of(name, file if not bases else next(reversed(bases)), file, bases)
        bases[str(path)] = name.mark
        try:
            data = read_bytes(path)
            trees.append(read_tree(data, str(path)))
        except ChunkwiseError as error:
            raise ChunkwiseError(*seen_through(bases, error.diagnostics)) from None
        size += len(data)
        within_limits(size, sum(map(count, trees)), bases)
    return Whole(laid_over(trees, [file, *bases], bases), bases)


def laid_over(trees: list[Map], files: list[str], bases: Mapping[str, Mark]) -> Map:
    """The trees as one. Each step must give a pipeline, so that an error is found in the file that makes it."""
    root = trees[-1]
    for place in reversed(range(len(trees) - 1)):
        root, errors = merged(root, trees[place])
        if errors := errors or pipeline_errors(root, files[::-1]):
            raise refusal(list(seen_through(bases, errors)))
    return root


def base_of(name: Scalar, extending: str, file: str, bases: Mapping[str, Mark]) -> Path:
    """The file that a name means where it is extended. Raises ChunkwiseError."""
    found = bases_of(name.text, extending)
    if len(found) == 1:
        refuse_circle(found[0], name, file, bases)
        return found[0]
    if found:
        message = f"{name.text} is a pipeline that ships, and {name.text}.yaml lies beside this file too"
        help = "nothing shadows a pipeline that ships: give your file another name"
    else:
        beside = (path.stem for path in Path(extending).parent.glob("*.yaml"))
        close = nearest(name.text, [*names(), *beside])
        message = f"there is no pipeline {name.text} to extend"
        help = f"did you mean {close}?" if close else f"those that ship are {', '.join(names())}"
    raise ChunkwiseError(*seen_through(bases, [Diagnostic(UNKNOWN_BASE, message, name.mark, help=help)]))


def refuse_circle(path: Path, name: Scalar, file: str, bases: Mapping[str, Mark]) -> None:
    """Whether the file has been extended already, or one more is too many."""
    before = [file, *bases]
    again = next((place for place, each in enumerate(before) if same_file(each, path)), None)
    steps = [*bases.values(), name.mark]
    if again is not None:
        circle = " -> ".join(Path(each).stem for each in (*before[again:], path))
        error = Diagnostic(BASE_CYCLE, f"the pipelines extend each other: {circle}", steps[-1])
    elif len(before) == MOST_FILES:
        error = Diagnostic(LIMIT, f"more than {MOST_FILES} files extend one another", steps[-1])
    else:
        return
    notes = tuple(Note(f"{Path(base).stem} is extended here", mark) for base, mark in bases.items())
    raise ChunkwiseError(replace(error, notes=notes))


def same_file(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()


def within_limits(size: int, nodes: int, bases: Mapping[str, Mark]) -> None:
    """Whether the files together are small enough. Raises ChunkwiseError."""
    message = None
    if size > MAX_BYTES:
        message = f"this file and what it extends are longer than {MAX_BYTES // 1024} KiB"
    elif nodes > MAX_NODES:
        message = f"this file and what it extends hold more than {MAX_NODES:,} values, with aliases written out"
    if message:
        first, *rest = bases.values()
        notes = tuple(Note("extended here", mark) for mark in rest)
        raise ChunkwiseError(Diagnostic(LIMIT, message, first, notes))


def seen_through(bases: Mapping[str, Mark], found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The diagnostics; one in a base says by which files it comes in."""
    for each in found:
        yield replace(each, notes=(*each.notes, *ways(bases, each.mark.file))) if each.mark else each


def ways(bases: Mapping[str, Mark], file: str) -> Iterator[Note]:
    while file in bases:
        yield Note("extended here", bases[file])
        file = bases[file].file
