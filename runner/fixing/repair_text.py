"""A text and its errors to a text with fewer: every repair that is certain, in rounds, since one may uncover others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..diagnostics.errors import ChunkwiseError, Convert, Diagnostic, Replace
from ..graphs.build_graph import check_graphs
from ..loading.load_spec import entries, parse_spec
from ..loading.spec import PipelineSpec
from ..loading.yaml_nodes import Entry, Map
from ..loading.yaml_text import parse_tree
from ..stage_files.stage_library import Stage
from .insert_stage import entry_edit
from .text_edits import Edit, Places, apply

ROUNDS = 8


@dataclass(frozen=True)
class Repaired:
    """text: with every certain repair. errors: those that it still has. repairs: how many were made."""

    text: str
    errors: tuple[Diagnostic, ...]
    repairs: int


def repair_text(text: str, file: str, stages: Mapping[str, Stage]) -> Repaired:
    """Repairs until nothing certain is left to do; file: what errors call the text."""
    repairs = 0
    for _ in range(ROUNDS):
        spec, errors = read(text, file, stages)
        round = Round(text, file, spec)
        for error in errors:
            round.add(error)
        if not round.edits:
            break
        text, repairs = apply(text, round.edits), repairs + round.repairs
    return Repaired(text, tuple(errors), repairs)


def read(text: str, file: str, stages: Mapping[str, Stage]) -> tuple[PipelineSpec | None, Sequence[Diagnostic]]:
    """The spec, as far as there is one, and every error."""
    spec = None
    try:
        spec = parse_spec(text, file)
        check_graphs(spec, stages)
    except ChunkwiseError as error:
        return spec, error.diagnostics
    return spec, ()


def in_other_file(error: Diagnostic, file: str) -> bool:
    """Whether what would be repaired is written in a file that this one extends."""
    return error.repair is not None and error.repair.mark.file != file


class Round:
    """The edits for one list of errors. Edges that want the same conversion share one new entry."""

    def __init__(self, text: str, file: str, spec: PipelineSpec | None):
        self.places, self.file, self.spec, self.edits, self.repairs = Places(text), file, spec, [], 0
        self.made: dict[tuple[str, str, str], str] = {}
        self.root = parse_tree(text, file)[0] if spec else None

    def add(self, error: Diagnostic) -> None:
        if in_other_file(error, self.file):
            return
        match error.repair:
            case Replace(mark, old, new):
                edits = self.replaced(mark, old, new)
            case Convert():
                edits = self.converted(error.repair)
            case _:
                edits = []
        if edits and not set(edits) <= set(self.edits):
            self.edits += edits
            self.repairs += 1

    def replaced(self, mark, old: str, new: str) -> list[Edit]:
        """Nothing where the file writes the old text in another way: with escapes, or over lines."""
        start, end = self.places.span(mark)
        return [Edit(start, end, new)] if self.places.text[start:end] == old else []

    def converted(self, wanted: Convert) -> list[Edit]:
        key = (wanted.use, wanted.takes, wanted.source)
        new, id = [], self.made.get(key)
        if id is None:
            id = self.free_name(wanted.use)
            new = self.inserted(id, wanted)
            if not new:
                return []
        edge = self.replaced(wanted.mark, wanted.source, f"{id}.{wanted.gives}")
        if edge:
            self.made[key] = id
        return [*new, *edge] if edge else []

    def inserted(self, id: str, wanted: Convert) -> list[Edit]:
        """The new entry, in front of the first one in the file that reads the edge."""
        stages = entries(self.root)["stages"].value if "stages" in entries(self.root) else None
        readers = [entry for entry in self.spec.stages.values() if wanted.mark in [e.source_mark for e in entry.edges]]
        before: Entry | None = stages.entries.get(readers[0].id) if readers and isinstance(stages, Map) else None
        edit = entry_edit(self.places, stages, before, id, wanted) if before else None
        return [edit] if edit else []

    def free_name(self, use: str) -> str:
        """The stage's name, numbered where something is called so already."""
        spec = self.spec
        taken = {*spec.inputs, *spec.stages, *spec.params, *spec.axes, *self.made.values()}
        names = (use if number == 1 else f"{use}_{number}" for number in range(1, len(taken) + 2))
        return next(name for name in names if name not in taken)
