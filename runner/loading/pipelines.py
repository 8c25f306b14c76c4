"""Where pipeline files lie."""

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
    close = nearest(path.stem, names())
    help = f"did you mean {close}?" if close else f"pipelines here are {', '.join(names())}; a path ends in .yaml"
    raise ChunkwiseError(Diagnostic(codes.NO_FILE, f"there is no pipeline {str(pipeline):.80}", help=help))


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        message = f"{str(path):.80} cannot be looked for: {error.strerror}"
        raise ChunkwiseError(Diagnostic(codes.NO_FILE, message)) from None
