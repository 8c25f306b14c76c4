"""``new``: from a definition alone to a pipeline file, its stages found and held against the definition."""

import re
from dataclasses import replace
from pathlib import Path

from ..composing.compose import Composed, NotComposed, compose
from ..composing.missing import missing_stage
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, by_place, quoted
from ..loading.check_expressions import expression_errors
from ..loading.load_spec import read_recurrence
from ..loading.spec import PipelineSpec
from ..loading.spec_keys import NAME as NAMES
from ..reporting.outcome import Outcome, Progress
from ..stage_files.stage_library import find_stages
from ..verification.oracle import definition_errors
from ._options import stage_folders

NAME = "new"
HELP = "find the stages of a definition: write a pipeline file that is checked, trainable and equal to it"


def arguments(parser) -> None:
    parser.add_argument("name", metavar="NAME", help="the new pipeline's name")
    parser.add_argument("--from", dest="source", required=True, metavar="FILE", help="inputs and definition, no stages")
    parser.add_argument("-o", "--out", metavar="FILE", help="where to write it; NAME.yaml here by default")
    parser.add_argument("--force", action="store_true", help="write over files that are there")
    stage_folders(parser)


def execute(args) -> Outcome:
    out, progress = Path(args.out or f"{args.name}.yaml"), Progress()
    refuse(args.name, out, args.force)
    spec = read(args.source, args.name)
    found = compose(spec, find_stages(args.stages), str(out), progress)
    progress.done()
    if isinstance(found, NotComposed):
        wrong = missing_stage(found)
        return Outcome({"pipeline": spec.name, "found": False}, (), [wrong], exit=codes.FAILED)
    write(out, found.text)
    return Outcome(document(found, out), [words(found, out)])


def refuse(name: str, out: Path, force: bool) -> None:
    if not re.fullmatch(NAMES.pattern, name) or name in NAMES.refused:
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{quoted(name)} is not a name", help=NAMES.help))
    if out.suffix not in (".yaml", ".yml"):
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{out} is no name of a pipeline file: it ends in .yaml"))
    if out.exists() and not force:
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{out} is there already", help="--force writes over it"))


def read(source: str, name: str) -> PipelineSpec:
    """The file under its new name. Raises ChunkwiseError with everything that is wrong with its definition."""
    spec = replace(read_recurrence(source), name=name)
    if found := [*expression_errors(spec), *definition_errors(spec)]:
        raise ChunkwiseError(*by_place(found))
    return spec


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{path} cannot be written: {error.strerror}")) from None


def document(found: Composed, out: Path) -> dict:
    return {
        "pipeline": found.spec.name,
        "found": True,
        "files": [str(out)],
        "stages": {entry.id: entry.use for entry in found.spec.stages.values()},
        "differences": dict(found.confirmation.differences),
        "without_gradient": list(found.without_gradient),
    }


def words(found: Composed, out: Path) -> str:
    checked = found.confirmation.differences
    gradients = [name for name in checked if name.startswith("d_")]
    chain = ", ".join(entry.use for entry in found.spec.stages.values())
    lines = [
        f"wrote {out}: {len(found.spec.stages)} stages ({chain})",
        f"verified in float64: {len(checked) - len(gradients)} outputs and {len(gradients)} gradients within "
        f"{max(checked.values()):.1e} of the definition",
    ]
    if found.without_gradient:
        lines.append(f"no gradient: {', '.join(found.without_gradient)}")
    return "\n".join(lines)
