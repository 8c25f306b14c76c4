"""A diagnostic as text, in the style of a good compiler, and as a JSON object.

    error[CW304]: unit mismatch at out.g
      --> pipelines/gated_delta.yaml:31:70
       |
    31 |   out: {use: chunk_o, in: {q: q, k: k, g: g}}
       |                                           ^ expected log_decay/log2/chunk_sum, got log_decay/ln/token
    note: ...
    help: ...

Text from a file is untrusted: control characters are shown, never sent to the terminal.
"""

import os
import unicodedata
from pathlib import Path

from .errors import Diagnostic, Note
from .marks import Mark

WIDTH = 100
"""Cells of a source line that a frame shows; longer lines are cut to a window around the mark."""
TAB = "    "
CUT = "..."
STYLES = {"error": "1;31", "warning": "1;33", "note": "1;36", "help": "1;32", "frame": "34", "message": "1"}


def render(diagnostic: Diagnostic, colour: bool = False) -> str:
    """The diagnostic as lines of text. colour: with ANSI colours; the caller knows the terminal and NO_COLOR."""

    def paint(text: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour else text

    severity = "warning" if diagnostic.warning else "error"
    head = paint(f"{severity}[{diagnostic.code}]", severity)
    lines = [head + paint(f": {visible(diagnostic.message)}", "message")]
    if diagnostic.mark:
        lines += frame(
            diagnostic.mark, diagnostic.label, lambda text: paint(text, "frame"), lambda text: paint(text, severity)
        )
    for note in diagnostic.notes:
        lines += note_lines(note, paint)
    if diagnostic.help:
        lines.append(paint("help", "help") + f": {visible(diagnostic.help)}")
    return "\n".join(lines)


def note_lines(note: Note, paint) -> list[str]:
    """A note with its place; the source line too when it is short."""
    head = paint("note", "note") + f": {visible(note.text)}"
    if note.mark is None:
        return [head]
    source = note.mark.source
    if source is None or len(source) > WIDTH:
        return [f"{head} ({place(note.mark)})"]
    return [head, *frame(note.mark, None, lambda text: paint(text, "frame"), lambda text: paint(text, "note"))]


def frame(mark: Mark, label: str | None, paint_frame, paint_caret) -> list[str]:
    """Place, source line and caret line. Without the file's text, the place alone."""
    gutter = " " * len(str(mark.line))
    arrow = f"{gutter}{paint_frame('-->')} {place(mark)}"
    source = mark.source
    if source is None:
        return [arrow]
    text, offset, length = window(source, mark)
    caret = paint_caret("^" * length + (f" {visible(label)}" if label else ""))
    return [
        arrow,
        paint_frame(f"{gutter} |"),
        f"{paint_frame(f'{mark.line} |')} {text}".rstrip(),
        f"{paint_frame(f'{gutter} |')} {' ' * offset}{caret}",
    ]


def window(source: str, mark: Mark) -> tuple[str, int, int]:
    """The part of the line to show, the caret's cell in it, and the caret's length in cells."""
    cells = [glyph(character) for character in source]
    start = min(mark.column - 1, len(cells))
    end = min(mark.end_column - 1, len(cells)) if mark.end_line == mark.line else len(cells)
    low, high = 0, len(cells)
    if width(cells) > WIDTH:
        low = high = start
        while high < len(cells) and width(cells[low:high]) < WIDTH // 2:
            high += 1
        while low > 0 and width(cells[low:high]) < WIDTH:
            low -= 1
        while high < len(cells) and width(cells[low:high]) < WIDTH:
            high += 1
    before = CUT if low > 0 else ""
    after = CUT if high < len(cells) else ""
    text = before + "".join(shown for shown, _ in cells[low:high]) + after
    offset = len(before) + width(cells[low:start])
    return text, offset, max(1, width(cells[start : min(end, high)]))


def glyph(character: str) -> tuple[str, int]:
    """What to show for a character, and how many cells it takes."""
    if character == "\t":
        return TAB, len(TAB)
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return "\N{REPLACEMENT CHARACTER}", 1
    if unicodedata.combining(character):
        return character, 0
    return character, 2 if unicodedata.east_asian_width(character) in "WF" else 1


def width(cells: list[tuple[str, int]]) -> int:
    return sum(size for _, size in cells)


def visible(text: str) -> str:
    """Text with control and format characters, line feeds apart, written as escapes."""
    return "".join(
        ascii(each)[1:-1] if each != "\n" and unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") else each
        for each in text
    )


def place(mark: Mark) -> str:
    """file:line:column, the file relative to the current directory when below it."""
    return f"{visible(shown_path(mark.file))}:{mark.line}:{mark.column}"


def shown_path(file: str) -> str:
    if not os.path.isabs(file):
        return file
    try:
        path, here = Path(file), Path.cwd()
        return str(path.relative_to(here)) if path.is_relative_to(here) else file
    except OSError:
        return file


def as_json(diagnostic: Diagnostic) -> dict:
    """The diagnostic for ``--json``: code, severity, message, file, line, column, end, help and notes."""
    severity = "warning" if diagnostic.warning else "error"
    message = f"{diagnostic.message}: {diagnostic.label}" if diagnostic.label else diagnostic.message
    notes = [{"message": note.text, **place_as_json(note.mark)} for note in diagnostic.notes]
    return {
        "code": diagnostic.code,
        "severity": severity,
        "message": message,
        **place_as_json(diagnostic.mark),
        "help": diagnostic.help,
        "notes": notes,
    }


def place_as_json(mark: Mark | None) -> dict:
    if mark is None:
        return dict.fromkeys(("file", "line", "column", "end_line", "end_column"))
    return {
        "file": shown_path(mark.file),
        "line": mark.line,
        "column": mark.column,
        "end_line": mark.end_line,
        "end_column": mark.end_column,
    }
