"""What went wrong, as a value: code, place, both ends, what fixed it first, help."""

from collections.abc import Iterable
from dataclasses import dataclass

from .marks import Mark


@dataclass(frozen=True)
class Note:
    """A second place that belongs to the error, e.g. the edge that first fixed an axis."""

    text: str
    mark: Mark | None = None


@dataclass(frozen=True)
class Replace:
    """A certain repair: the text new in place of old, which stands at mark."""

    mark: Mark
    old: str
    new: str


@dataclass(frozen=True)
class Convert:
    """A certain repair of an edge: its source, which stands at mark, goes through a stage entry of its own first.

    The entry is ``{use: use, in: {takes: source}}``, and the edge reads its output ``gives``.
    """

    mark: Mark
    source: str
    use: str
    takes: str
    gives: str


@dataclass(frozen=True)
class Diagnostic:
    """One error or warning. code: a key of ``codes.CODES``, which also fixes the exit code.

    label: a few words to stand right of the caret.
    warning: shown as a warning; it stops nothing and does not count for the exit code.
    repair: what ``check --fix`` does about it, where one repair alone is possible.
    """

    code: str
    message: str
    mark: Mark | None = None
    notes: tuple[Note, ...] = ()
    help: str | None = None
    label: str | None = None
    warning: bool = False
    repair: Replace | Convert | None = None


def quoted(text: object, longest: int = 60) -> str:
    """A value of a file for a message: in quotes, cut when long."""
    text = str(text)
    return f"'{text}'" if len(text) <= longest else f"'{text[:longest]}...'"


def by_place(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each diagnostic once, in the order of the text; those without a place first."""
    return sorted(dict.fromkeys(diagnostics), key=lambda each: each.mark.place if each.mark else ("", 0, 0))


class ChunkwiseError(Exception):
    """Raised with every diagnostic that was found. ``str(error)`` is the rendered text without colour."""

    def __init__(self, *diagnostics: Diagnostic):
        self.diagnostics = diagnostics
        super().__init__(*diagnostics)

    def __str__(self) -> str:
        from .render_errors import render

        return "\n\n".join(render(each) for each in self.diagnostics)

    def __repr__(self) -> str:
        """As PyTorch's compiler quotes it in an error of its own."""
        return f"{type(self).__name__}: {self}"
