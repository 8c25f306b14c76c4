"""Files that a command leaves behind."""

from pathlib import Path

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic


def write_file(path: Path, text: str) -> None:
    """UTF-8, lines ending in a line feed. A place that cannot be written to is a ChunkwiseError."""
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise ChunkwiseError(Diagnostic(codes.OUTPUT, message, help="name a place that you can write to")) from None
