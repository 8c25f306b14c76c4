"""``check``: everything that can be known without a tensor."""

from collections.abc import Mapping, Sequence

import torch

from ..calling.function import Op, load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, by_place
from ..fixing.fix_file import Fixed, fix_file, hidden_behind
from ..graphs.check_warnings import warnings_of
from ..graphs.flops import require_flops
from ..reporting.outcome import Outcome
from ..stage_files.own_code import refusal
from ..verification.oracle import number_errors
from ._options import HEADS, fixed_axes, input_sizes, read_axes, read_seqlens, stage_folders, workload

NAME = "check"
HELP = "check pipelines: keys, wiring, shapes, dtypes, units, laws, constraints, definition"


def arguments(parser) -> None:
    parser.add_argument("pipelines", nargs="+", metavar="PIPE", help="a name in pipelines/, or a path")
    parser.add_argument(
        "--axes", default="", metavar="B=1,T=4096", help=f"check these sizes too, as run would; {HEADS}"
    )
    parser.add_argument("--workload", metavar="NAME", help="the same, for a named workload")
    parser.add_argument("--seqlens", metavar="100,0,28", help="the same, for packed sequences")
    repair = parser.add_mutually_exclusive_group()
    repair.add_argument("--fix", action="store_true", help="repair what has one certain repair, show the difference")
    repair.add_argument("--diff", action="store_true", help="show what --fix would write, and write nothing")
    stage_folders(parser)


def execute(args) -> Outcome:
    found, lines, documents = [], [], []
    for pipeline in args.pipelines:
        fixes: dict = {}
        try:
            if args.fix or args.diff:
                fixes = fixed_document(fix_file(pipeline, args.stages, write=args.fix), lines)
            name, stages, warnings = check_one(pipeline, args)
            found += warnings
            lines.append(f"{name}: ok, {stages} stages")
            documents.append({"pipeline": name, "ok": True, "stages": stages, **fixes})
        except ChunkwiseError as error:
            found += by_place([*error.diagnostics, *hidden_behind(pipeline, args.stages, error.diagnostics)])
            documents.append({"pipeline": str(pipeline), "ok": False, **fixes})
    errors = [each for each in found if not each.warning]
    warnings = [each for each in found if each.warning]
    document = {"pipelines": documents}
    if errors:
        outcome = Outcome.of_errors(errors, document, lines)
        return Outcome(outcome.document, outcome.text, errors, warnings, outcome.exit)
    return Outcome(document, lines, (), warnings)


def fixed_document(fixed: Fixed, lines: list[str]) -> dict:
    """What --fix did to a file, for the JSON; as text, onto lines."""
    lines += [*fixed.diff, fixed.note]
    return {"fixed": fixed.written, "diff": list(fixed.diff), "note": fixed.note}


def check_one(pipeline: str, args) -> tuple[str, int, list[Diagnostic]]:
    axes, seqlens = read_axes(args.axes), read_seqlens(args.seqlens)
    op = fixed_axes(load(pipeline, stages=args.stages), axes)
    if args.axes or args.workload or seqlens is not None:
        try_sizes(op, input_sizes(op.whole, workload(args.workload, "cpu"), axes, seqlens), seqlens)
    return op.spec.name, len(op.whole.nodes), unsupported_sizes(op) + type_warnings(op)


def type_warnings(op: Op) -> list[Diagnostic]:
    """With everything present, with each optional input absent, and with all absent."""
    optional = [entry.name for entry in op.spec.inputs.values() if entry.optional]
    patterns = dict.fromkeys([*(frozenset([name]) for name in optional), frozenset(optional)])
    return warnings_of(op.whole, [op.graph(pattern) for pattern in patterns if pattern])


def try_sizes(op: Op, sizes: Mapping[str, int], seqlens: Sequence[int] | None) -> None:
    """Raises what ``run`` and every call of these sizes would raise, for it is a call that has no tensors."""
    nothing, device = dict.fromkeys(op.whole.inputs), torch.device("cpu")
    call = op.call(op.whole, nothing, {}, sizes, None, seqlens, torch.float32, device, op.whole.outputs)
    call.forward_plan()
    require_flops(op.whole, call.sizes)
    if found := number_errors(op.whole, call.params, call.sizes):
        raise ChunkwiseError(*found)


def unsupported_sizes(op: Op) -> list[Diagnostic]:
    """Warnings for fixed axes that no kernel takes, whatever the other sizes."""
    fixed = {name: written.value for name, written in op.spec.axes.items()}
    found = []
    for node in op.whole.nodes.values():
        axes = {axis: fixed.get(term, 64) for axis, term in node.axes.items()}
        reasons = [refusal(node.stage, launcher, axes, "sm_90", node.id) for launcher in node.stage.launchers]
        if reasons and all(reasons):
            why = "; ".join(dict.fromkeys(reasons))
            message = f"{node.id} ({node.stage.name}) has no kernel for these sizes: {why}"
            found.append(Diagnostic(codes.SIZE, message, node.mark, warning=True))
    return found
