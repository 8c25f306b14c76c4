"""``tune``: search for faster configurations of a pipeline's kernels, on the GPU that is here."""

from argparse import ArgumentTypeError
from pathlib import Path

import torch

from ..calling.function import Op, load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.sizes import complete
from ..graphs.wire import did_you_mean
from ..interrupt import cleaned_up
from ..planning.dtypes import IO_DTYPES
from ..planning.plan import require_triton
from ..planning.tuned import VARIABLE, config_text, machine
from ..planning.tuned_file import Tuned, parse_tuned, tuned_text
from ..reporting.outcome import Outcome, Progress
from ..reporting.write_file import write_file
from ..rewriting.recurrent import MODES
from ..stage_files.source_hash import source_hash
from ..tuning.child import DONE, Child
from ..tuning.job import Job
from ..tuning.search import REFUSALS, Found, Kernel, kernels, refused, search
from ..workloads import WORKLOADS
from ._options import (
    HEADS,
    backward_options,
    fixed_axes,
    fusion_option,
    input_sizes,
    read_axes,
    read_budget,
    read_params,
    read_seqlens,
    stage_folders,
    timed_workload,
)
from ._subject import refuse_recurrent_gradients
from ._tables import table

NAME = "tune"
HELP = "search for faster configurations of a pipeline's kernels; each must keep verify's budget"


def arguments(parser) -> None:
    parser.add_argument("pipeline", metavar="PIPE", help="a name in pipelines/, or a path")
    stage_folders(parser)
    parser.add_argument("--axes", default="", metavar="K=128,V=128", help=f"sizes, over the workload's; {HEADS}")
    parser.add_argument("--params", default="", metavar="window=64", help="numbers of a call, over the defaults")
    parser.add_argument("--workload", metavar="NAME", help=f"what it is timed at: one of {', '.join(WORKLOADS)}")
    parser.add_argument("--dtype", choices=IO_DTYPES, default="bf16", help="IO dtype (bf16)")
    parser.add_argument("--mode", choices=MODES, default="auto", help="as in run")
    fusion_option(parser)
    parser.add_argument("--seqlens", metavar="100,0,28", help="lengths of packed sequences (B = 1)")
    parser.add_argument("--stage", metavar="NAME,...", help="these alone: stages of the file, or scan.vjp and the like")
    parser.add_argument("--tries", type=count, default=24, metavar="N", help="configurations of a kernel beside those "
                        "that ship (24)")  # fmt: skip
    parser.add_argument("--patience", type=count, default=120, metavar="S", help="seconds after which one hangs (120)")
    parser.add_argument("--out", default="tuned.yaml", metavar="FILE", help="where they go, beside what it holds of "
                        "other kernels and machines")  # fmt: skip
    backward_options(parser, "the kernels of the backward pass too")


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**6:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999999")
    return int(text)


def execute(args) -> Outcome:
    if not torch.cuda.is_available():
        message = "tune times kernels on the GPU that is here, and there is none"
        help = "warmup --arch 90 compiles for one that is elsewhere; what is fastest there only it can say"
        raise ChunkwiseError(Diagnostic(codes.NO_GPU, message, help=help))
    require_triton("triton")
    return tuned(read_job(args), args)


def read_job(args, device: torch.device | None = None, backend: str = "triton") -> Job:
    axes, seqlens, budget = read_axes(args.axes), read_seqlens(args.seqlens), read_budget(args)
    refuse_recurrent_gradients(args.mode, args.backward)
    op: Op = fixed_axes(load(args.pipeline, backend=backend, stages=args.stages, mode=args.mode, fuse=args.fuse), axes)
    sizes = input_sizes(op.whole, timed_workload(args.workload, "cuda", op.whole), axes, seqlens)
    sizes = complete(op.whole, sizes, len(seqlens) if seqlens is not None else None)
    fixed = {name: size for name, size in axes.items() if name in op.spec.axes}
    device = device or torch.device("cuda", torch.cuda.current_device())
    return Job(
        args.pipeline, tuple(args.stages), fixed, sizes, seqlens, read_params(args.params, op.spec.params),
        IO_DTYPES[args.dtype], device, backend, args.mode, args.fuse, args.backward, budget,
    )  # fmt: skip


def tuned(job: Job, args) -> Outcome:
    """What a search finds, written and told."""
    path = Path(args.out)
    before, wanted = known(path), asked(kernels(job), args.stage)
    progress = Progress()
    child = Child(job, args.patience, lambda: progress("start a process"))
    with cleaned_up(child.end):
        found = [search(kernel, job, child, args.tries, progress) for kernel in wanted]
    progress.done()
    here = machine(job.device)
    machines = {**before, here: merged(before.get(here, {}), found, job)}
    write_file(path, tuned_text({name: kept for name, kept in machines.items() if kept}))
    document = {"pipeline": job.pipeline, "machine": here, "file": str(path), "kernels": list(map(as_json, found))}
    rows = [best_table(here, found), *refused_table(found), f"wrote {path}; {VARIABLE}={path} makes calls run these"]
    wrong = [failure(each) for each in found if each.trials[0].what != DONE]
    return Outcome.of_errors(wrong, document, rows) if wrong else Outcome(document, rows)


def known(path: Path) -> dict[str, dict[str, Tuned]]:
    """What a file holds already. That it cannot be read, or written, is said before the search."""
    found = parse_tuned(path.read_bytes(), str(path)) if path.exists() else {}
    write_file(path, tuned_text(found))
    return found


def asked(found: list[Kernel], stages: str | None) -> list[Kernel]:
    """Those of the stages that were named, by their place in the pipeline or by the stage's name; all otherwise."""
    if stages is None:
        return found
    names = [name.strip() for name in stages.split(",")]
    there = list(dict.fromkeys(name for each in found for name in (*each.nodes, each.stage)))
    for name in names:
        if name not in there:
            help = did_you_mean(name, there) or f"it has {', '.join(there)}"
            raise ChunkwiseError(Diagnostic(codes.USAGE, f"--stage: no kernel is run for {name!r}", help=help))
    return [each for each in found if {*each.nodes, each.stage} & {*names}]


def merged(before: dict[str, Tuned], found: list[Found], job: Job) -> dict[str, Tuned]:
    """What is known of a machine: of the kernels that were searched what was found now."""
    at = " ".join(f"{axis}={size}" for axis, size in job.sizes.items())
    kept = {key: each for key, each in before.items() if key not in {one.kernel.key for one in found}}
    better = [each for each in found if each.best]
    return kept | {
        each.kernel.key: Tuned(source_hash(each.kernel.file), each.best, each.ms, each.shipped_ms or each.ms, at)
        for each in better
    }


def failure(found: Found) -> Diagnostic:
    first = found.trials[0]
    message = f"{found.kernel.nodes[0]}: what ships, {config_text(first.config)}, {REFUSALS[first.what]}: {first.why}"
    return Diagnostic(codes.LAUNCH_FAILED, message, help="chunkwise verify says more; please report it")


def as_json(found: Found) -> dict:
    kernel = found.kernel
    trials = [{"config": dict(each.config), "result": each.what, "latency_ms": each.ms, "why": each.why}
              for each in found.trials]  # fmt: skip
    return {
        "kernel": kernel.key, "nodes": list(kernel.nodes), "stage": kernel.stage, "tuned": found.best,
        "latency_ms": found.ms, "shipped_latency_ms": found.shipped_ms, "tried": trials,
    }  # fmt: skip


def best_table(here: str, found: list[Found]):
    columns = {"stage": "left", "uses": "left", "ships ms": "right", "tuned ms": "right", "faster": "right",
               "tried": "right", "configuration": "left"}  # fmt: skip
    return table(f"tuned on {here}", columns, map(best_row, found))


def best_row(found: Found) -> tuple[str, ...]:
    first = found.trials[0]
    ships = "-" if found.shipped_ms is None else f"{found.shipped_ms:.4f}"
    counts = f"{sum(each.what == DONE for each in found.trials)} of {len(found.trials)}"
    where, stage = ", ".join(found.kernel.nodes), found.kernel.stage
    if found.best is None:
        return where, stage, ships, "-", "-", counts, "what ships"
    gain = f"{100 * (1 - found.ms / found.shipped_ms):.1f} %" if found.shipped_ms else "-"
    return where, stage, ships, f"{found.ms:.4f}", gain, counts, changes(first.config, found.best)


def changes(first, config) -> str:
    """Where a configuration differs from the first that ships."""
    return " ".join(f"{name}={number}" for name, number in config.items() if first.get(name) != number)


def refused_table(found: list[Found]) -> list:
    rows = [
        (kernel.nodes[0], config_text(each.config), REFUSALS[each.what], each.why[:120])
        for kernel, each in refused(found)
    ]
    return [table("not taken", dict.fromkeys(("stage", "configuration", "what", "why"), "left"), rows)] if rows else []
