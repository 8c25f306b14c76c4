"""``check``: everything that can be known without a tensor."""

from ..calling.function import load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.sizes import complete, size_errors
from ..reporting.outcome import Outcome
from ._options import fixed_axes, input_sizes, read_axes, read_seqlens, stage_folders, workload

NAME = "check"
HELP = "check pipelines: keys, wiring, shapes, dtypes, units, laws, constraints, definition"


def arguments(parser) -> None:
    parser.add_argument("pipelines", nargs="+", metavar="PIPE", help="a name in pipelines/, or a path")
    parser.add_argument("--axes", default="", metavar="B=1,T=4096", help="check the constraints for these sizes too")
    parser.add_argument("--workload", metavar="NAME", help="the same, for a named workload")
    parser.add_argument("--seqlens", metavar="100,0,28", help="the same, for packed sequences")
    stage_folders(parser)


def execute(args) -> Outcome:
    found, lines, documents = [], [], []
    for pipeline in args.pipelines:
        try:
            name, stages, warnings = check_one(pipeline, args)
            found += warnings
            lines.append(f"{name}: ok, {stages} stages")
            documents.append({"pipeline": name, "ok": True, "stages": stages})
        except ChunkwiseError as error:
            found += error.diagnostics
            documents.append({"pipeline": str(pipeline), "ok": False})
    errors = [each for each in found if not each.warning]
    warnings = [each for each in found if each.warning]
    document = {"pipelines": documents}
    if errors:
        outcome = Outcome.of_errors(errors, document, lines)
        return Outcome(outcome.document, outcome.text, errors, warnings, outcome.exit)
    return Outcome(document, lines, (), warnings)


def check_one(pipeline: str, args) -> tuple[str, int, list[Diagnostic]]:
    axes, seqlens = read_axes(args.axes), read_seqlens(args.seqlens)
    op = fixed_axes(load(pipeline, stages=args.stages), axes)
    found = []
    if args.axes or args.workload or seqlens is not None:
        sizes = input_sizes(op.whole, workload(args.workload, "cpu"), axes, seqlens)
        found += size_errors(op.whole, complete(op.whole, sizes, len(seqlens) if seqlens is not None else None))
    if found:
        raise ChunkwiseError(*found)
    return op.spec.name, len(op.whole.nodes), unsupported_sizes(op)


def unsupported_sizes(op) -> list[Diagnostic]:
    """Warnings for fixed axes that no kernel takes, whatever the other sizes."""
    fixed = {name: written.value for name, written in op.spec.axes.items()}
    found = []
    for node in op.whole.nodes.values():
        axes = {axis: fixed.get(term, 64) for axis, term in node.axes.items()}
        reasons = [launcher.when(axes, "sm_90") for launcher in node.stage.launchers]
        if reasons and all(reasons):
            message = f"{node.id} ({node.stage.name}) has no kernel for these sizes: {'; '.join(reasons)}"
            found.append(Diagnostic(codes.SIZE, message, node.mark, warning=True))
    return found
