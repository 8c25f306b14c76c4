"""Options that several commands share, and what they mean."""

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Collection, Mapping
from pathlib import Path

from ..calling.function import Op
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.graph import Graph
from ..graphs.wire import did_you_mean
from ..planning.dtypes import IO_DTYPES
from ..planning.plan import BACKENDS
from ..rewriting.recurrent import MODES, SHORT
from ..workloads import WORKLOADS, other_axes

HEADS = "H alone sets HV and HQ too"
"""Of --axes: grouped heads are asked for by both numbers; H = 3 beside a workload's HV = 4 would be no grouping."""

STEPS = "without one, what writes its states in place is timed at T=1"


def stage_folders(parser) -> None:
    parser.add_argument("--stages", action="append", default=[], metavar="DIR", help="a folder with stages of your own")


def sizes_and_machine(parser) -> None:
    """What run and verify share."""
    stage_folders(parser)
    parser.add_argument("--axes", default="", metavar="B=1,T=4096", help=f"sizes, over the workload's; {HEADS}")
    parser.add_argument("--params", default="", metavar="window=64", help="numbers of a call, over the defaults")
    parser.add_argument("--workload", metavar="NAME", help=f"one of {', '.join(WORKLOADS)}; {STEPS}")
    parser.add_argument("--dtype", choices=IO_DTYPES, help="IO dtype (bf16 on a GPU, fp32 without)")
    parser.add_argument("--device", metavar="cpu|cuda[:N]", help="where to run (a GPU if there is one)")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="auto: triton on a GPU, reference without")
    parser.add_argument("--mode", choices=MODES, default="auto", help=f"auto: token by token up to T = {SHORT}")
    fusion_option(parser)
    parser.add_argument("--seqlens", metavar="100,0,28", help="lengths of packed sequences (B = 1)")
    parser.add_argument("--inputs", metavar="FILE.safetensors", help="tensors from a file in place of generated ones")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the generated inputs")
    parser.add_argument("--probe", action="store_true", help="first run once and hold every value against its law")
    parser.add_argument("--until", metavar="STAGE", help="stop after this stage; its outputs are the pipeline's")


def fusion_option(parser) -> None:
    help = "stages that may stand for several others in one kernel; auto: those timed faster here; none: as written"
    parser.add_argument("--fuse", default="auto", metavar="none|auto|NAME,...", help=help)


def backward_options(parser, help: str) -> None:
    parser.add_argument("--backward", action="store_true", help=help)
    parser.add_argument("--memory-budget", metavar="MB", help="what a call may keep for backward; the rest is rebuilt")


def read_budget(args) -> int | None:
    """The memory budget of a command that runs the backward pass only with --backward."""
    if args.memory_budget is not None and not args.backward:
        message = "--memory-budget has no effect without --backward: it is what a call may keep for that"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="add --backward, or leave it out"))
    return megabytes(args.memory_budget)


def megabytes(text: str | None) -> int | None:
    """``500`` or ``1.5``, megabytes (10^6), as bytes."""
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
        message = f"--memory-budget {text!r} is not a number of megabytes"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="write --memory-budget 500"))
    return int(float(text) * 1e6)


def read_axes(text: str) -> dict[str, int]:
    """``B=1,T=4096`` as numbers; ``T=4k`` means 4096."""
    sizes = {}
    for part in parts_of(text):
        found = re.fullmatch(r"(\w+)\s*=\s*([0-9]{1,9})(k?)", part)
        if re.fullmatch(r"\w+\s*=\s*[0-9]{10,}k?", part):
            raise ChunkwiseError(Diagnostic(codes.BAD_AXES, f"--axes: {part:.40}: a size has at most nine digits"))
        if not found:
            help = "write sizes as B=1,T=4096 (T=4k is 4096)"
            raise ChunkwiseError(Diagnostic(codes.BAD_AXES, f"--axes: {part!r} is not NAME=SIZE", help=help))
        if found[1] in sizes:
            raise ChunkwiseError(Diagnostic(codes.BAD_AXES, f"--axes gives {found[1]} twice"))
        sizes[found[1]] = int(found[2]) * (1024 if found[3] else 1)
    if text and not sizes:
        help = "write sizes as B=1,T=4096"
        raise ChunkwiseError(Diagnostic(codes.BAD_AXES, f"--axes {text!r} names no axis", help=help))
    return sizes


def parts_of(text: str) -> list[str]:
    """What stands between commas, of which one may end the text; an empty part, of a script's variable that was not
    set, is one too."""
    return [each.strip() for each in text.rstrip().removesuffix(",").split(",")] if text.strip(", ") else []


def read_params(text: str, known: Collection[str]) -> dict[str, float]:
    """``window=64,scale=0.5`` as numbers; known: the names of the pipeline's params."""
    numbers = {}
    for part in parts_of(text):
        found = re.fullmatch(r"(\w+)\s*=\s*([-+]?(?:[0-9]+|[0-9]*\.[0-9]+|[0-9]+\.)(?:[eE][-+]?[0-9]+)?)", part)
        if not found:
            help = "write numbers as window=64,scale=0.5"
            raise ChunkwiseError(Diagnostic(codes.USAGE, f"--params: {part!r} is not NAME=NUMBER", help=help))
        name, number = found.groups()
        if name not in known:
            names = f"its params are {', '.join(known)}" if known else "it has no params"
            help = did_you_mean(name, known) or names
            raise ChunkwiseError(Diagnostic(codes.USAGE, f"--params: the pipeline has no param {name}", help=help))
        if name in numbers:
            raise ChunkwiseError(Diagnostic(codes.USAGE, f"--params gives {name} twice"))
        numbers[name] = int(number) if re.fullmatch("[-+]?[0-9]+", number) else float(number)
    return numbers


def seed(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 to 999999999")
    return int(text)


def out_folder(out: str, pipeline: str) -> Path:
    """OUT/PIPELINE, made here and now: a place that cannot be written to is said before the work is done."""
    if out == "-":
        message = "--out -: this command writes several files, and stdout holds its result"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="name a folder; ./- is one called -"))
    folder = Path(out) / pipeline
    help = "name a folder that you can write to"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--out {out}: {folder} cannot be made: {error.strerror}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help)) from None
    if not os.access(folder, os.W_OK):
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"--out {out}: {folder} cannot be written to", help=help))
    return folder


def read_seqlens(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        message = f"--seqlens {text!r} is not a list of lengths"
        raise ChunkwiseError(Diagnostic(codes.BAD_SEQLENS, message, help="write lengths as 100,0,28"))
    return tuple(map(int, parts))


def usual_workload(device: str) -> str:
    """What is taken where none is named."""
    return "tiny" if device == "cpu" else "B4_T2048_H16_D128"


def workload(name: str | None, device: str) -> dict[str, int]:
    name = name or usual_workload(device)
    if name not in WORKLOADS:
        help = did_you_mean(name, WORKLOADS) or f"workloads are {', '.join(WORKLOADS)}"
        raise ChunkwiseError(Diagnostic(codes.UNKNOWN_WORKLOAD, f"there is no workload {name}", help=help))
    return {**WORKLOADS[name], **other_axes(WORKLOADS[name])}


def timed_workload(name: str | None, device: str, graph: Graph) -> Mapping[str, int]:
    """workload, for what is timed: where none is named, a step that writes its states in place is taken at one token,
    which is what it is called with."""
    return workload(name, device) | ({"T": 1} if name is None and graph.mutated else {})


def input_sizes(
    graph: Graph, base: Mapping[str, int], axes: Mapping[str, int], seqlens, option: str = "--axes"
) -> dict[str, int]:
    """A size for every axis of the graph's inputs, from the workload, --axes and --seqlens, in rising order. option:
    where the user wrote the axes."""
    known = set(graph.axis_names) | set(graph.spec.axes)
    for name in axes:
        if name not in known:
            help = did_you_mean(name, known) or f"its axes are {', '.join(sorted(known))}"
            raise ChunkwiseError(Diagnostic(codes.BAD_AXES, f"{option}: {graph.name} has no axis {name}", help=help))
        if name in ("NT", "N"):
            what = "the number of sequences" if name == "N" else "the number of chunks"
            help = "--axes B=... or --seqlens sets it" if name == "N" else "--axes T=... or C=... changes it"
            message = f"{option}: {name}, {what}, follows from the other sizes"
            raise ChunkwiseError(Diagnostic(codes.BAD_AXES, message, help=help))
    sizes = {name: size for name, size in base.items() if name in known}
    if seqlens is not None:
        sizes.update(B=1, T=sum(seqlens))
    sizes.update(axes)
    for heads in ("HV", "HQ"):
        if "H" in axes and heads not in axes and heads in sizes:
            sizes[heads] = sizes["H"]
    if "SLOTS" in known and "B" in sizes:
        sizes.setdefault("SLOTS", (len(seqlens) if seqlens is not None else sizes["B"]) + 1)
    needed = {axis for value in graph.inputs.values() for axis in value.axes if isinstance(axis, str)}
    missing = sorted(needed - {"N", *sizes, *graph.spec.axes})
    if missing:
        message = f"no size is known for {', '.join(missing)}"
        help = f"pass --axes {','.join(f'{axis}=...' for axis in missing)}"
        raise ChunkwiseError(Diagnostic(codes.AXIS_SIZE, message, graph.spec.mark, help=help))
    return sizes


def fixed_axes(op: Op, axes: Mapping[str, int]) -> Op:
    """The op with --axes written over the file's own fixed axes (C=32, say)."""
    over = {name: size for name, size in axes.items() if name in op.spec.axes}
    return op.with_axes(over) if over else op
