"""``run``: check, verify at a small size, time each stage and the whole op, draw the graph."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from ..calling.call import Call
from ..drawing.save_graph import save_svg
from ..graphs.flops import require_flops
from ..parallel.torchrun import refuse_ranks
from ..reporting.environment import environment
from ..reporting.outcome import Outcome, Progress, document_text
from ..reporting.proton import profile, refuse_without_gpu
from ..reporting.report_run import RunReport, document, run_lines, run_table
from ..reporting.timing import time_call
from ..reporting.write_file import write_file
from ..verification.generate import make_inputs
from ..verification.report_verify import document as verify_document
from ..verification.report_verify import verify_table
from ..verification.result import Verification
from ..verification.small_case import small_case
from ..verification.verify import verify
from ._options import backward_options, out_folder, read_axes, sizes_and_machine
from ._probe import probe_document, probe_failed, probe_lines, probed_values
from ._subject import CommandSubject, subject

NAME = "run"
HELP = "check, verify at a small size, time every stage and the whole op, draw the graph"


def arguments(parser) -> None:
    parser.add_argument("pipeline", metavar="PIPE", help="a name in pipelines/, or a path")
    sizes_and_machine(parser)
    backward_options(parser, "forward, rebuild and backward, each stage of them")
    parser.add_argument("--proton", action="store_true", help="profile it with Proton too, a scope for each stage")
    parser.add_argument("--context-parallel", action="store_true", help="cut the sequences over torchrun's processes")
    parser.add_argument("--out", default="out", metavar="DIR", help="where graph.svg and report.json go: DIR/PIPE/")


def execute(args) -> Outcome:
    if args.context_parallel:
        from ._context_parallel import run_ranks  # brings in PyTorch's compiler, for seconds

        return run_ranks(args)
    refuse_ranks("run without --context-parallel")
    return run_alone(args)


def run_alone(args) -> Outcome:
    progress = Progress()
    what = subject(args, timed=True)
    if args.proton:
        refuse_without_gpu(what.device)
    folder = out_folder(args.out, what.op.spec.name)
    probed = probed_values(what) if args.probe else None
    if probed and probed.found:
        return probe_failed(what, probed)
    call = what.op.bind({**what.inputs, **what.params}, seqlens=what.seqlens)
    call.forward_plan()  # what no kernel or constraint allows is said before anything is verified
    require_flops(call.graph, call.sizes)
    small = replace(what, op=what.op.with_mode(call.mode))
    checked = verify_small(small, call, read_axes(args.axes), args.backward, progress)
    if not checked.ok:
        progress.done()
        return not_timed(checked, what.device)
    timings = time_call(call, args.backward, progress)
    progress.done()
    picture, notes = save_svg(folder, call, timings)
    files = (picture, folder / "report.json", *([profile(call, args.backward, folder)] if args.proton else []))
    report = RunReport(call, timings, checked, what.seqlens, files, (*what.notes, *notes))
    result = {**document(report), **probe_document(probed)}
    outcome = Outcome(result, [run_table(report), *probe_lines(probed), *run_lines(report)])
    write_file(folder / "report.json", document_text(outcome))
    return outcome


def verify_small(what: CommandSubject, call: Call, asked: Mapping[str, int], backward: bool, progress) -> Verification:
    """Verify on the same device, dtype and back end, where the float64 recurrence takes a moment only; on the tensors
    of an inputs file when it says what is expected of them."""
    if what.expected:
        return verify(
            what.op, what.inputs, seqlens=what.seqlens, params=what.params, backward=backward, expected=what.expected,
            cotangents=what.cotangents, progress=progress,
        )  # fmt: skip
    sizes, seqlens = small_case(what.op.whole, call.sizes, asked, what.seqlens)
    inputs = make_inputs(what.op.whole, sizes, what.io, what.device)
    return verify(what.op, inputs, seqlens=seqlens, params=what.params, backward=backward, progress=progress)


def not_timed(checked: Verification, device: torch.device) -> Outcome:
    why = replace(checked.failure, message=f"{checked.failure.message}; nothing was timed")
    result = {**verify_document(checked), "stages": [], "environment": environment(device)}
    return Outcome(result, [verify_table(checked)], [why], exit=1)
