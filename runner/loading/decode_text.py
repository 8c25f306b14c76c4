"""Bytes of a file to text, or an error that says what is wrong with them."""

import re
from pathlib import Path

from ..diagnostics.codes import ENCODING, LIMIT, NO_FILE
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.hints import nearest
from ..diagnostics.marks import Mark

MAX_BYTES = 256 * 1024

UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Control characters, line breaks that YAML 1.2 does not know, text direction overrides, surrogates."""


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file, at most one more than the limit. Raises ChunkwiseError."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ChunkwiseError(Diagnostic(NO_FILE, f"no such file: {path}", help=neighbour(path))) from None
    except IsADirectoryError:
        raise ChunkwiseError(Diagnostic(NO_FILE, f"{path} is a folder, not a file")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ChunkwiseError(Diagnostic(NO_FILE, f"cannot read {path}: {reason}")) from None


def neighbour(path: Path) -> str | None:
    """Help that names the YAML file of the same folder that was probably meant."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    near = nearest(path.name, (each.name for each in path.parent.glob("*.y*ml")))
    return f"did you mean {path.parent / near}?" if near else None


def decode(data: bytes | str, file: str) -> str:
    """data as text without a byte order mark. Raises ChunkwiseError if it is too long or holds what no text holds."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(raw) > MAX_BYTES:
        raise ChunkwiseError(Diagnostic(LIMIT, f"{file} is longer than {MAX_BYTES // 1024} KiB"))
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ChunkwiseError(Diagnostic(ENCODING, f"{file} is in UTF-16", help="save it as UTF-8"))
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8").removeprefix("\ufeff")
        mark = mark_after(before, raw.decode("utf-8", "replace").removeprefix("\ufeff"), file)
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise ChunkwiseError(Diagnostic(ENCODING, message, mark, help="save the file as UTF-8")) from None
    if found := UNPRINTABLE.search(text):
        message = f"the character U+{ord(found[0]):04X} may not stand in a pipeline file"
        raise ChunkwiseError(Diagnostic(ENCODING, message, mark_after(text[: found.start()], text, file)))
    return text


def mark_after(before: str, text: str, file: str) -> Mark:
    """The mark of the character that follows before in text."""
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return Mark(file, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 2, text)
