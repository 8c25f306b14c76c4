"""Where something stands in a text."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mark:
    """A span of a file. line and column start at 1; the end is exclusive. text: the whole file, for the frame."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str = field(default="", repr=False)

    @property
    def place(self) -> tuple[str, int, int]:
        """What marks are sorted by."""
        return self.file, self.line, self.column

    @property
    def source(self) -> str | None:
        """The marked line without its line break, None if the mark carries no text for it."""
        lines = self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return lines[self.line - 1] if self.text and 0 < self.line <= len(lines) else None

    def within(self, start: int, end: int) -> "Mark":
        """The part of a one-line mark from character offset start to end inside it."""
        column = self.column + start
        return Mark(self.file, self.line, column, self.line, max(column + 1, self.column + end), self.text)
