"""Where pipeline files lie."""

import re
from pathlib import Path

from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.hints import nearest

FOLDER = Path(__file__).parents[2] / "pipelines"


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def bases_of(name: str, file: str) -> list[Path]:
    """The files that ``extends: name`` can mean in a file: one beside it, one that ships; the same one once."""
    beside, shipped = Path(file).parent / f"{name}.yaml", FOLDER / f"{name}.yaml"
    found = [each for each in (beside, shipped) if each.is_file()]
    return found[:1] if len(found) == 2 and beside.samefile(shipped) else found


def find_pipeline(pipeline: str | Path) -> Path:
    """The file that a name, a file name in the pipelines folder, or a path means."""
    path = Path(pipeline)
    for candidate in (path, FOLDER / path.name, FOLDER / f"{path.name}.yaml"):
        within = candidate == path or len(path.parts) == 1
        if within and candidate.suffix in (".yaml", ".yml") and is_file(candidate):
            return candidate
    raise ChunkwiseError(Diagnostic(codes.NO_FILE, f"there is no pipeline {str(pipeline):.80}", help=instead_of(path)))


def instead_of(path: Path) -> str:
    """What somebody may have meant: the name of a stage counts as what uses it."""
    if path.parts == (path.stem,) and (used_by := with_stage(path.stem)):
        return f"{path.stem} is a stage, of {', '.join(used_by)}"
    close = nearest(path.stem, names())
    return f"did you mean {close}?" if close else f"pipelines here are {', '.join(names())}; a path ends in .yaml"


def with_stage(name: str) -> list[str]:
    used = re.compile(rf"\buse: {re.escape(name)}\b")
    return [each for each in names() if used.search((FOLDER / f"{each}.yaml").read_text(encoding="utf-8"))]


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        message = f"{str(path):.80} cannot be looked for: {error.strerror}"
        raise ChunkwiseError(Diagnostic(codes.NO_FILE, message)) from None
