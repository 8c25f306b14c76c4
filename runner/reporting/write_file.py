"""Files that a command leaves behind."""

from errno import EDQUOT, ENOSPC
from pathlib import Path

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic


def write_file(path: Path, content: str | bytes, folder: bool = False) -> None:
    """A text, in UTF-8 with lines ending in a line feed, or bytes. folder: make the folder that it goes to.
    ChunkwiseError: for a place that takes no file the command line is to blame, for a full disk the machine."""
    try:
        if folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        code = codes.OUTPUT if error.errno in (ENOSPC, EDQUOT) else codes.USAGE
        message = f"{path} cannot be written: {error.strerror}"
        raise ChunkwiseError(Diagnostic(code, message, help="name a place that you can write to")) from None
