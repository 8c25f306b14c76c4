"""The cases that a command line of bench means: pipelines x dtypes x modes x workloads x points of the sweeps."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import torch

from ..benching.case import Case
from ..benching.peers import names
from ..calling.function import Op, load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.sizes import complete
from ..graphs.wire import did_you_mean
from ..planning.dtypes import IO_DTYPES
from ..rewriting.recurrent import MODES
from ._case_options import SWEEP_HELP
from ._options import fixed_axes, input_sizes, read_axes, read_budget, read_seqlens, timed_workload, usual_workload
from ._subject import pick_device, refuse_recurrent_gradients

MOST_POINTS = 200
SIZE = r"([0-9]{1,9})(k?)"


def bench_cases(args) -> list[Case]:
    """Everything is read and checked before anything is measured. Raises ChunkwiseError."""
    device, seqlens, budget = pick_device(args), read_seqlens(args.seqlens), read_budget(args)
    modes = chosen("--mode", args.mode, MODES)
    pipelines, workloads = map(dict.fromkeys, (args.pipelines, args.workload.split(",") if args.workload else [None]))
    for mode in modes:
        refuse_recurrent_gradients(mode, args.backward)
    cases = []
    for name, dtype, mode in itertools.product(pipelines, dtypes(args, device), modes):
        op = load(name, backend=args.backend, stages=args.stages, memory_budget=budget, mode=mode, fuse=args.fuse)
        absent = left_out(args.without, op)
        for base, point in itertools.product(workloads, sweep_points(args.sweep)):
            axes = read_axes(args.axes) | point
            here = fixed_axes(op, axes)
            option = "--sweep" if point and not args.axes else "--axes and --sweep" if point else "--axes"
            sizes = input_sizes(here.whole, timed_workload(base, device.type, here.whole), axes, seqlens, option)
            sizes = complete(here.whole, sizes, len(seqlens) if seqlens is not None else None)
            known = None if axes or seqlens else base or (None if here.whole.mutated else usual_workload(device.type))
            how = dict(seqlens=seqlens, io=dtype, device=device, backward=args.backward, seed=args.seed, absent=absent)
            cases.append(Case(here, known, sizes, frozenset(axes), **how))
    if len(cases) > MOST_POINTS:
        message = f"these are too many cases: {MOST_POINTS} is the most"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="split the sweep, or take larger steps"))
    return cases


def left_out(text: str | None, op: Op) -> tuple[str, ...]:
    """Of the op's optional inputs and its outputs, those named; one output stays."""
    known = [*(name for name, each in op.spec.inputs.items() if each.optional), *op.spec.outputs]
    named = tuple(chosen("--without", text, known)) if text else ()
    if set(op.spec.outputs) <= set(named):
        message = f"--without {text} leaves no output of {op.spec.name}"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f"its outputs are {', '.join(op.spec.outputs)}"))
    return named


def dtypes(args, device: torch.device) -> list[torch.dtype]:
    usual = "bf16" if device.type == "cuda" else "fp32"
    return [IO_DTYPES[name] for name in chosen("--dtype", args.dtype or usual, IO_DTYPES)]


def peers(text: str | None) -> list[str]:
    return chosen("--vs", text, names()) if text else []


def chosen(option: str, text: str, known) -> list[str]:
    """Names with commas between, each once."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in found:
        if name not in known:
            help = did_you_mean(name, known) or f"{option} takes {', '.join(known)}, with commas between"
            raise ChunkwiseError(Diagnostic(codes.USAGE, f"{option}: there is no {name!r}", help=help))
    return found


def sweep_points(sweeps: Sequence[str]) -> Iterator[Mapping[str, int]]:
    """Every combination of the sizes of all sweeps; one empty point without any."""
    axes = [read_sweep(text) for text in sweeps]
    twice = [name for at, (name, _) in enumerate(axes) if name in dict(axes[:at])]
    if twice:
        raise ChunkwiseError(Diagnostic(codes.BAD_AXES, f"--sweep gives {twice[0]} twice", help=SWEEP_HELP))
    for sizes in itertools.product(*(sizes for _, sizes in axes)):
        yield {name: size for (name, _), size in zip(axes, sizes)}


def read_sweep(text: str) -> tuple[str, list[int]]:
    """``T=1k..64k*2``, ``T=64..256+64`` or ``H=16,96``: the axis and its sizes."""
    axis, _, rest = (part.strip() for part in text.partition("="))
    steps = re.fullmatch(rf"{SIZE}\.\.{SIZE}([*+]){SIZE}", rest)
    listed = re.fullmatch(rf"{SIZE}(,{SIZE})*", rest)
    if not re.fullmatch(r"\w+", axis) or not (steps or listed):
        message = f"--sweep {text!r:.60} is not an axis and its sizes"
        raise ChunkwiseError(Diagnostic(codes.BAD_AXES, message, help=SWEEP_HELP))
    if listed:
        return axis, list(dict.fromkeys(number(*re.fullmatch(SIZE, part).groups()) for part in rest.split(",")))
    low, high, step = (number(steps[at], steps[at + 1]) for at in (1, 3, 6))
    if low > high or (step < 2 and steps[5] == "*") or step < 1 or (low == 0 and steps[5] == "*"):
        message = f"--sweep {text}: it never gets from {low} to {high}"
        raise ChunkwiseError(Diagnostic(codes.BAD_AXES, message, help=SWEEP_HELP))
    found = [low]
    while (size := found[-1] * step if steps[5] == "*" else found[-1] + step) <= high and len(found) <= MOST_POINTS:
        found.append(size)
    return axis, found


def number(digits: str, k: str) -> int:
    return int(digits) * (1024 if k else 1)
