"""Files that a command leaves behind."""

from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic


def write_file(path: Path, text: str, folder: bool = False) -> None:
    """UTF-8, lines ending in a line feed. ChunkwiseError: for a place that takes no file the command line is to blame,
    for a full disk the machine. folder: make the folder that it goes to."""
    with refusals(path):
        if folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def append_to_file(path: Path, text: str) -> None:
    """The same, behind what is there."""
    with refusals(path), path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)


@contextmanager
def refusals(path: Path):
    try:
        yield
    except OSError as error:
        code = codes.OUTPUT if error.errno in (ENOSPC, EDQUOT) else codes.USAGE
        message = f"{path} cannot be written: {error.strerror}"
        raise ChunkwiseError(Diagnostic(code, message, help="name a place that you can write to")) from None
