"""``check --fix``: one file repaired in place, or left as it is with a word on why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Convert, Diagnostic
from ..diagnostics.render_errors import shown_path
from ..loading.decode_text import decode, read_bytes
from ..loading.pipelines import find_pipeline
from ..stage_files.stage_library import find_stages
from .hidden_errors import hidden_errors
from .repair_text import in_other_file, repair_text
from .text_edits import diff

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Fixed:
    """diff: lines of a unified diff; none where nothing certain is to be done. written: whether the file changed.

    note: one line on what was done, or why nothing was.
    """

    diff: tuple[str, ...]
    written: bool
    note: str


def fix_file(pipeline: str, stage_folders: Sequence[str], write: bool) -> Fixed:
    """Repair a file as far as that is certain. It is written only where the result has no error left.

    Raises ChunkwiseError where the file cannot be read or written, or was named as a pipeline that ships.
    """
    path = find_pipeline(pipeline)
    data = read_bytes(path)
    before = decode(data, str(path))
    after = repair_text(before, str(path), find_stages(stage_folders))
    name = shown_path(str(path))
    if after.text == before:
        return Fixed((), False, f"{name}: {unrepaired(after.errors, str(path)) if after.errors else 'as it is'}")
    lines = tuple(diff(before, after.text, name))
    if after.errors:
        left = f"{name}: not written: {count(after.repairs, 'repair')}, and {count(len(after.errors), 'error')} left"
        return Fixed(lines, False, left)
    if write:
        write_back(path, pipeline, data, after.text)
    return Fixed(lines, write, f"{name}: {count(after.repairs, 'repair')}{'' if write else ', not written'}")


def unrepaired(errors: Sequence[Diagnostic], file: str) -> str:
    """Why nothing was done about errors."""
    others = [error.repair.mark.file for error in errors if in_other_file(error, file)]
    if others:
        return f"what is to be repaired stands in {shown_path(others[0])}: check that file --fix"
    if any(isinstance(error.repair, Convert) for error in errors):
        place = "the file has no entry under stages for the converting stage to stand at"
        return f"nothing to repair with certainty: {place}"
    return "nothing to repair with certainty"


def hidden_behind(pipeline: str, stage_folders: Sequence[str], found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The errors of a file that its misspelt names keep from being found."""
    if not any(error.repair for error in found):
        return []
    path = find_pipeline(pipeline)
    return hidden_errors(decode(read_bytes(path), str(path)), str(path), find_stages(stage_folders), found)


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def write_back(path: Path, named: str, data: bytes, text: str) -> None:
    if path != Path(named):
        message = f"{named} ships with chunkwise, and --fix writes files that are named by their path"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f"chunkwise check {shown_path(str(path))} --fix"))
    mark = BYTE_ORDER_MARK if data.startswith(BYTE_ORDER_MARK) else b""
    try:
        path.write_bytes(mark + text.encode("utf-8"))
    except OSError as error:
        message = f"--fix cannot write {path}: {error.strerror}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="--diff shows the repair without writing")) from None
