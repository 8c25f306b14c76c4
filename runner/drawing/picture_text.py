"""Text that a picture shows: times, sizes, docstrings and lines of files, free of characters that SVG cannot hold."""

import re
from pathlib import Path

from ..diagnostics.marks import Mark

TIP_LINES = 24
"""Lines of a docstring that a tooltip shows."""


def printable(text: str) -> str:
    """Characters that XML 1.0 cannot hold, and the control characters, replaced."""
    return re.sub(r"[^\t\n\u0020-\u007e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def duration(ms: float) -> str:
    """Three digits of a time in ms."""
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def bytes_text(count: int) -> str:
    """1536 -> 1.5 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{round(count, 1):g} {unit}"
        count = count / 1024
    return f"{round(count, 1):g} GiB"


def source_line(mark: Mark | None) -> str:
    """``file:line`` and the line itself, without the folder, so that a picture does not depend on the machine."""
    if mark is None:
        return ""
    lines = mark.text.splitlines()
    written = lines[mark.line - 1].strip() if 0 < mark.line <= len(lines) else ""
    return printable(f"{Path(mark.file).name}:{mark.line}\n{written}".rstrip())


def docstring(doc: str | None) -> str:
    lines = printable(doc or "").strip().splitlines()
    return "\n".join(lines[:TIP_LINES] + (["..."] if len(lines) > TIP_LINES else []))


def tooltip(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most width characters, broken after a space, ``/``, ``_`` or ``,`` where there is one."""
    lines, line = [], ""
    for piece in re.findall(r"[^ /_,]*[ /_,]?", one_line(text)):
        while len(line) + len(piece.rstrip()) > width:
            if not line:
                line, piece = piece[:width], piece[width:]
            lines.append(line.rstrip())
            line = ""
        line += piece
    return [*lines, line.rstrip()] if line.strip() else lines
