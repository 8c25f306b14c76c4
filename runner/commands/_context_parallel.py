"""``run --context-parallel``: the same report, of an op whose sequences are cut over the processes of torchrun."""

import os
import time
from dataclasses import replace

import torch
import torch.distributed as dist

from ..calling.function import load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..drawing.save_graph import save_svg
from ..graphs.flops import require_flops
from ..graphs.sizes import complete
from ..parallel.cut import ROWS, even_rows, row_axis, tokens_of
from ..parallel.lost_rank import meeting
from ..parallel.parallel_op import ParallelOp
from ..parallel.rank_clock import RankClock
from ..parallel.split_graph import cut_errors
from ..parallel.torchrun import require_ranks
from ..parallel.verify_ranks import verify_ranks
from ..reporting.outcome import Outcome, Progress, document_text
from ..reporting.report_run import RunReport, document, run_lines, run_table
from ..reporting.timing import Timings, time_call
from ..reporting.write_file import write_file
from ..verification.generate import make_inputs
from ..verification.result import Verification
from ..verification.small_case import small_case
from ._options import fixed_axes, input_sizes, out_folder, read_axes, read_budget, read_params, read_seqlens, workload
from ._subject import pick_device, pick_dtype
from .run import not_timed

OWN_ROWS = "each rank makes its own rows"
WHY = {"inputs": OWN_ROWS, "probe": OWN_ROWS, "until": OWN_ROWS, "proton": "a profile is of one process"}
LEAVES_LAST = 5.0
"""Seconds that a rank waits which leaves it to rank 0 to say why: torchrun ends all with the first that fails, and that
should be the one that speaks."""


def run_ranks(args) -> Outcome:
    """Every rank runs it; rank 0 prints. What is refused is refused on all alike, and rank 0 says it."""
    try:
        op = cut_op(args)
        out_folder(args.out, op.spec.name)
        require_ranks("--context-parallel", "-m chunkwise.runner run PIPE --context-parallel")
        outcome = run_group(args, op)
    except ChunkwiseError as error:
        outcome = Outcome.of_errors(error.diagnostics)
        alike = all(codes.CODES[each.code].exit == codes.REFUSED for each in error.diagnostics)
        quiet = alike and rank_of_environment() > 0
        if quiet:
            time.sleep(LEAVES_LAST)
        return replace(outcome, quiet=quiet)
    return replace(outcome, quiet=rank_of_environment() > 0)


def cut_op(args):
    """The op of the command line, if it can be cut at all."""
    for option in WHY:
        if getattr(args, option) not in (None, False):
            message = f"--{option} is not there with --context-parallel: {WHY[option]}"
            raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="leave it out, or run one process"))
    if args.mode == "recurrent":
        message = "--mode recurrent has no context parallel form: it goes token by token"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="leave out --mode"))
    budget = read_budget(args)
    op = load(
        args.pipeline, backend=args.backend, stages=args.stages, memory_budget=budget, mode="chunk", fuse=args.fuse
    )
    op = fixed_axes(op, read_axes(args.axes))
    read_params(args.params, op.spec.params)
    if found := cut_errors(op.whole, op.stages):
        raise ChunkwiseError(*found)
    return op


def rank_of_environment() -> int:
    return int(os.environ.get("RANK", 0))


def run_group(args, op) -> Outcome:
    if args.device is None and torch.cuda.is_available() and args.backend != "interpret":
        args.device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    device = pick_device(args)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mine = not dist.is_initialized()
    if mine:
        cuda = device.type == "cuda"
        dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    try:
        return run_cut(args, ParallelOp(op), device)
    finally:
        if mine:
            dist.destroy_process_group()


def run_cut(args, op: ParallelOp, device: torch.device) -> Outcome:
    """As run_alone: bind, verify at a small size, time, draw; at most rank 0 has something to show."""
    progress = Progress() if op.ranks.rank == 0 else str
    io, notes = pick_dtype(args, device)
    seqlens, asked = read_seqlens(args.seqlens), read_axes(args.axes)
    whole = input_sizes(op.op.whole, workload(args.workload, device.type), asked, seqlens)
    whole = complete(op.op.whole, whole, len(seqlens) if seqlens is not None else None)
    params = read_params(args.params, op.op.spec.params)
    call, place = bind_rows(op, whole, params, seqlens, io, device, args.seed)
    call.forward_plan()
    require_flops(call.graph, call.sizes)
    sizes, short = small_case(op.op.whole, whole, asked, seqlens)
    inputs = make_inputs(op.op.whole, sizes, io, device)
    checked = verify_ranks(op, inputs, seqlens=short, params=params, backward=args.backward, progress=progress)
    if not all_ok(op, checked):
        return not_timed(checked, device) if checked else Outcome({}, exit=codes.FAILED)
    timings = time_call(call, args.backward, progress, RankClock(op.ranks, device))
    if op.ranks.rank:
        return Outcome({})
    progress.done()
    return report(args, op, RunReport(call, timings, checked, seqlens, (), (place, *notes)))


def bind_rows(op: ParallelOp, whole, params, seqlens, io, device, seed: int):
    """(a call on this rank's rows, made here, what they are in words)."""
    rows = even_rows(tokens_of(whole), op.ranks.size)
    here = {**whole, **{axis: rows[op.ranks.rank] for axis in ROWS if axis in whole}}
    inputs = make_inputs(op.op.whole, here, io, device, seed + op.ranks.rank)
    inputs |= whole_numbers(op, whole, io, device, seed) | params
    call, _ = op.bind(inputs, seqlens=seqlens, rows=rows)
    text = f"rank 0 of {op.ranks.size}: {rows[0]} of {sum(rows)} rows, over {op.ranks.transport}"
    return call, text


def whole_numbers(op: ParallelOp, whole, io, device, seed: int) -> dict:
    """Inputs that count rows of all ranks, and are the same on each: where documents end, say."""
    ints = [name for name, x in op.op.whole.inputs.items() if x.dtype == "int" and row_axis(x.axes) is None]
    made = make_inputs(op.op.whole, whole, io, device, seed) if ints else {}
    return {name: made[name] for name in ints}


def all_ok(op: ParallelOp, checked: Verification | None) -> bool:
    """What rank 0 found, on every rank: all go on or none."""
    said = [checked.ok if checked else True]
    with meeting("verification", op.ranks.rank, op.ranks.size):
        dist.broadcast_object_list(said, src=op.ranks.members[0], group=op.ranks.group)
    return said[0]


def report(args, op: ParallelOp, found: RunReport) -> Outcome:
    folder = out_folder(args.out, op.op.spec.name)
    picture, notes = save_svg(folder, found.call, found.timings)
    found = replace(found, files=(picture, folder / "report.json"), notes=(*found.notes, *notes))
    result = {**document(found), "ranks": op.ranks.size, "communication": sent(found.timings)}
    outcome = Outcome(result, [run_table(found), *lines_of(found), *run_lines(found)])
    write_file(folder / "report.json", document_text(outcome))
    return outcome


def sent(timings: Timings) -> list[dict]:
    """The stages of communication: bytes that come in from the other ranks, and how fast."""
    stages = [stage for stage in timings.stages if timings.graph.nodes[stage.id].stage.transport]
    return [{"id": s.id, "bytes": s.bytes, "gbps": s.gbps, "latency_ms": s.timing.median_ms} for s in stages]


def lines_of(found: RunReport) -> list[str]:
    """What was sent, and what the ranks made together."""
    lines = [
        f"{each['id']}: {each['bytes'] / 1e6:.3g} MB from other ranks, {each['gbps']:.3g} GB/s"
        for each in sent(found.timings)
    ]
    made = [row for row in found.verification.rows if row.backend.endswith(" ranks")]
    return [*lines, f"{made[0].backend} together: {len(made)} outputs and gradients within budget of the definition"]
