"""Errors that stand behind others: what a check would say next, told at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..diagnostics.errors import Diagnostic, Replace
from ..diagnostics.marks import Mark
from ..stage_files.stage_library import Stage
from .repair_text import Round, read
from .text_edits import Edit, Places, apply


def hidden_errors(text: str, file: str, stages: Mapping[str, Stage], found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The errors that are left when the names of the found ones are what they certainly are meant to be.

    Places are those of the text as it is. Nothing where no name has a certain repair, or where the rest still has no
    structure to go on with.
    """
    round = Round(text, file, None)
    for error in found:
        if isinstance(error.repair, Replace):
            round.add(error)
    if not round.edits:
        return []
    spec, errors = read(apply(text, round.edits), file, stages)
    if spec is None:
        return []
    back = Back(text, file, round.edits)
    moved = [back.diagnostic(error) for error in errors]
    listed = {(each.code, each.mark) for each in found}
    return [error for error in moved if (error.code, error.mark) not in listed]


class Back:
    """Places of the repaired text in the text as it is; no edit adds or removes a line."""

    def __init__(self, text: str, file: str, edits: Iterable[Edit]):
        self.text, self.file, self.edits = text, file, sorted(edits, key=lambda each: each.start)
        self.places = Places(text)

    def diagnostic(self, error: Diagnostic) -> Diagnostic:
        """Without a repair: that would speak of the other text."""
        notes = tuple(replace(note, mark=self.mark(note.mark)) for note in error.notes)
        return replace(error, mark=self.mark(error.mark), notes=notes, repair=None)

    def mark(self, mark: Mark | None) -> Mark | None:
        if mark is None or not mark.text or mark.file != self.file:
            return mark
        start, end = self.column(mark.line, mark.column), self.column(mark.end_line, mark.end_column)
        return Mark(mark.file, mark.line, start, mark.end_line, end, self.text)

    def column(self, line: int, column: int) -> int:
        """A column of a line of the repaired text as the column that it was; inside a repaired name, that one's end."""
        line_start = self.places.starts[line - 1]
        shift = 0
        for edit in self.edits:
            at = edit.start - line_start + 1
            if edit.start < line_start or at + shift >= column:
                continue
            new_end = at + shift + len(edit.new)
            if column <= new_end:
                return edit.end - line_start + 1
            shift += len(edit.new) - (edit.end - edit.start)
        return column - shift
