"""``show``: one stage, or one pipeline as it is solved."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..calling.function import load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, quoted
from ..diagnostics.hints import nearest
from ..graphs.wire import cycle_errors, run_order
from ..loading.decode_text import read_bytes
from ..loading.load_spec import read_spec, written_spec
from ..loading.pipelines import find_pipeline, names
from ..loading.spec_text import spec_text
from ..reporting.outcome import Outcome
from ..stage_files.stage_library import Stage, find_stages
from ._options import stage_folders
from ._show_pipeline import pipeline_document, pipeline_text
from ._show_stage import stage_document, stage_text

NAME = "show"
HELP = "show a stage (ports, units, laws, kernels, gradient) or a pipeline with its edges solved"


def arguments(parser) -> None:
    parser.add_argument("name", metavar="STAGE|PIPE", help="a stage; a pipeline's name, file name or path")
    parser.add_argument("--resolved", action="store_true", help="a pipeline as one file, with all that it extends")
    parser.add_argument("--backward", action="store_true", help="a pipeline with its rebuild and backward phases")
    stage_folders(parser)


def execute(args) -> Outcome:
    stages = find_stages(args.stages)
    if args.name in stages:
        if args.backward:
            message = f"--backward has no effect on a stage: `chunkwise show {args.name}` says all of its gradient"
            raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="leave it out; a pipeline has phases"))
        stage = stages[args.name]
        if args.resolved:
            raise ChunkwiseError(Diagnostic(codes.USAGE, f"--resolved is for a pipeline, and {args.name} is a stage"))
        return Outcome(stage_document(stage), stage_text(stage))
    require_pipeline(args.name, stages)
    if args.resolved:
        return resolved(args.name)
    op = load(args.name, stages=args.stages)
    graph = op.trainable_graph() if args.backward else op.whole
    return Outcome(pipeline_document(graph), pipeline_text(graph))


def resolved(name: str) -> Outcome:
    """The file with its stages in running order; not checked further, so that what does not fit can be looked at."""
    path = find_pipeline(name)
    spec, expanded = written_spec(read_bytes(path), str(path)), read_spec(path)
    order = spec.stages if cycle_errors(expanded) else [each for each in run_order(expanded) if each in spec.stages]
    text = spec_text(replace(spec, stages={stage: spec.stages[stage] for stage in order}))
    return Outcome({"pipeline": spec.name, "files": [spec.file, *spec.bases], "text": text}, [text.rstrip("\n")])


def require_pipeline(name: str, stages: Mapping[str, Stage]) -> None:
    """A bare name that is neither a pipeline nor a stage may be meant for either."""
    try:
        find_pipeline(name)
    except ChunkwiseError:
        if Path(name).suffix or len(Path(name).parts) > 1:
            raise
        close = nearest(name, [*stages, *names()])
        what_else = "`chunkwise list` names what there is; --stages DIR brings in stages of your own"
        help = f"did you mean {close}?" if close else what_else
        message = f"there is no stage and no pipeline {quoted(name)}"
        raise ChunkwiseError(Diagnostic(codes.UNKNOWN_STAGE, message, help=help)) from None
