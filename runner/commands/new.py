"""``new``: from a definition alone to a pipeline file, its stages found and held against the definition."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..composing.assigned_once import assigned_once
from ..composing.compose import Composed, NotComposed, compose
from ..composing.declarations import declaration_errors
from ..composing.missing import diagnostic, missing_stage
from ..composing.readings import given_outputs
from ..composing.stub import Stub, stub_of
from ..composing.with_stubs import compose_with_stubs
from ..composing.without_effect import needless
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, by_place, quoted
from ..expression import names_in
from ..loading.check_expressions import expression_errors
from ..loading.load_recurrence import read_recurrence
from ..loading.spec import PipelineSpec
from ..loading.spec_keys import NAME as NAMES
from ..reporting.outcome import Outcome, Progress
from ..reporting.write_file import write_file
from ..stage_files.stage_library import find_stages
from ..verification.oracle import definition_errors, parsed
from ._options import stage_folders

NAME = "new"
RENAME = "give the line another name"
HELP = "find the stages of a definition: write a pipeline file that is checked, trainable and equal to it"


def arguments(parser) -> None:
    parser.add_argument("name", metavar="NAME", help="the new pipeline's name")
    parser.add_argument("--from", dest="source", required=True, metavar="FILE", help="inputs and definition, no stages")
    parser.add_argument("-o", "--out", dest="file", metavar="FILE", help="where to write it; NAME.yaml here by default")
    parser.add_argument(
        "--stub", nargs="?", const="", metavar="DIR", help="write stages that are missing; to NAME_stages by default"
    )
    parser.add_argument("--force", action="store_true", help="write over files that are there")
    stage_folders(parser)


def execute(args) -> Outcome:
    out, progress = Path(args.file or f"{args.name}.yaml"), Progress()
    folder = None if args.stub is None else Path(args.stub or f"{args.name}_stages")
    refuse(args.name, out, args.force)
    spec = read(args.source, args.name)
    if folder is None:
        found, stubs = compose(spec, find_stages(args.stages), str(out), progress), []
    else:
        found, stubs = compose_with_stubs(spec, args.stages, str(out), progress)
    progress.done()
    if isinstance(found, NotComposed):
        return not_found(spec, found, args)
    files = {folder / f"{stub.name}.py": stub.text for stub in stubs} | {out: found.text}
    for path in files:
        refuse_file(path, args.force)
    for path, text in files.items():
        write_file(path, text, folder=True)
    return Outcome(document(found, files, stubs), [words(found, out, folder, stubs)], warnings=found.warnings)


def not_found(spec: PipelineSpec, found: NotComposed, args) -> Outcome:
    missing = None
    if not (errors := declaration_errors(found)):
        missing = missing_stage(found)
        errors = needless(found.case) if missing is None else []
    if errors:
        return Outcome({"pipeline": spec.name, "found": False}, (), errors, exit=codes.FAILED)
    contract = stub_of(missing, spec.name, find_stages(args.stages)).contract_words if missing else ""
    document = {"pipeline": spec.name, "found": False, "contract": contract}
    return Outcome(document, (), [diagnostic(found, missing, contract)], exit=codes.FAILED)


def refuse(name: str, out: Path, force: bool) -> None:
    if not re.fullmatch(NAMES.pattern, name) or name in NAMES.refused:
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{quoted(name)} is not a name", help=NAMES.help))
    if out.suffix not in (".yaml", ".yml"):
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{out} is no name of a pipeline file: it ends in .yaml"))
    refuse_file(out, force)


def refuse_file(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{path} is there already", help="--force writes over it"))


def read(source: str, name: str) -> PipelineSpec:
    """The file under its new name. Raises ChunkwiseError with everything that is wrong with its definition."""
    spec = replace(read_recurrence(source), name=name)
    if spec.definition.dense:
        message = "stages are found for a definition token by token (step), and this one is over whole tensors (dense)"
        help = "write the stages by hand: `chunkwise list` names them"
        raise ChunkwiseError(Diagnostic(codes.DEFINITION, message, spec.definition.dense[0].mark, help=help))
    if found := [*expression_errors(spec), *(definition_errors(spec) or own_errors(spec))]:
        raise ChunkwiseError(*by_place(found))
    return spec


def own_errors(spec: PipelineSpec) -> list[Diagnostic]:
    """Of a definition that can be evaluated, and that no stages could serve."""
    return [*unread_inputs(spec), *unwritten_states(spec), *output_errors(spec)]


def unwritten_states(spec: PipelineSpec) -> list[Diagnostic]:
    definition = parsed(spec)
    written = {each.target.id for each in definition.step}
    help = "a line of step gives the next state (S = S + outer(k, v)); what stays as it is is an input"
    return [
        Diagnostic(codes.DEFINITION, f"no line writes the state {name}", start.line.where, help=help)
        for name, start in definition.states.items()
        if name not in written
    ]


def unread_inputs(spec: PipelineSpec) -> list[Diagnostic]:
    definition = parsed(spec)
    values = [each.value for each in (*definition.let, *definition.step, *definition.states.values())]
    read = frozenset().union(*map(names_in, values)) | {each.condition.id for each in definition.step if each.condition}
    return [
        Diagnostic(codes.UNUSED_INPUT, f"the definition never reads the input {name}", each.mark, help="remove it")
        for name, each in spec.inputs.items()
        if name not in read
    ]


def output_errors(spec: PipelineSpec) -> list[Diagnostic]:
    """A definition without outputs, and outputs that have the name of an input."""
    definition = parsed(spec)
    once = assigned_once(definition, spec.inputs)
    given = given_outputs(once)
    if not given:
        message = "the definition gives nothing: its lines make states alone"
        help = "a line gives an output of each token (o = q @ S), final a state after the last one (final: {end: S})"
        return [Diagnostic(codes.DEFINITION, message, spec.definition.mark, help=help)]
    return [
        Diagnostic(codes.DEFINITION, f"{each.target.id} is an input, and an output too", each.line.where, help=RENAME)
        for each, new in zip(definition.step, once.step)
        if new.target.id in given and new.target.id != each.target.id
    ]


def document(found: Composed, files: Mapping[Path, str], stubs: Sequence[Stub]) -> dict:
    return {
        "pipeline": found.spec.name,
        "found": True,
        "files": [str(path) for path in files],
        "stages": {entry.id: entry.use for entry in found.spec.stages.values()},
        "stubs": {stub.name: stub.contract_words for stub in stubs},
        "tried": found.tried,
        "differences": dict(found.confirmation.differences),
        "without_gradient": list(found.without_gradient),
    }


def words(found: Composed, out: Path, folder: Path | None, stubs: Sequence[Stub]) -> str:
    checked = found.confirmation.differences
    gradients = [name for name in checked if name.startswith("d_")]
    entries = found.spec.stages.values()
    stages = list({entry.formula.text if entry.formula else entry.id: entry.use for entry in entries}.values())
    lines = [f"wrote {folder / stub.name}.py: {stub.contract_words}" for stub in stubs]
    lines += [
        f"wrote {out}: {counted(len(stages), 'stage')} ({', '.join(stages)})",
        f"verified in float64: {counted(len(checked) - len(gradients), 'output')} and "
        f"{counted(len(gradients), 'gradient')} within {max(checked.values()):.1e} of the definition",
    ]
    if found.without_gradient:
        lines.append(f"no stage gives a gradient of {', '.join(found.without_gradient)}")
    if stubs:
        lines.append(f"next: chunkwise verify {out} --stages {folder}")
    return "\n".join(lines)


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
