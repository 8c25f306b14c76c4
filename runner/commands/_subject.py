"""The op, inputs and machine that a command line means."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from ..calling.function import Op, load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.sizes import complete
from ..loading.pipelines import names
from ..planning.devices import read_device
from ..planning.dtypes import IO_DTYPES
from ..verification.generate import CASES, cases_of, make_inputs
from ..verification.inputs_file import read_inputs
from ._options import (
    fixed_axes,
    input_sizes,
    read_axes,
    read_budget,
    read_params,
    read_seqlens,
    timed_workload,
    workload,
)


@dataclass(frozen=True)
class CommandSubject:
    """notes: lines for the user about what was decided for them. expected, cotangents: see inputs_file.InputsFile."""

    op: Op
    inputs: Mapping[str, torch.Tensor | None]
    params: Mapping[str, float]
    seqlens: tuple[int, ...] | None
    io: torch.dtype
    device: torch.device
    notes: tuple[str, ...] = ()
    expected: Mapping[str, torch.Tensor] = field(default_factory=dict)
    cotangents: Mapping[str, torch.Tensor] = field(default_factory=dict)


def subject(args, timed: bool = False) -> CommandSubject:
    """timed: whether times are taken of it, and not only numbers."""
    device, axes, seqlens = pick_device(args), read_axes(args.axes), read_seqlens(args.seqlens)
    budget = read_budget(args)
    refuse_recurrent_gradients(args.mode, args.backward)
    op = load(
        args.pipeline, backend=args.backend, stages=args.stages, memory_budget=budget, mode=args.mode, fuse=args.fuse
    )
    whole, op = op.spec, fixed_axes(part_of(op, args.until, axes) if args.until else op, axes)
    params = read_params(args.params, op.spec.params)
    io, notes = pick_dtype(args, device)
    if args.inputs:
        refuse_options_beside_a_file(args, op, axes)
        file = read_inputs(args.inputs, op, io if args.dtype else None, device, whole)
        if file.seqlens is not None and seqlens is not None:
            message = f"--seqlens {args.seqlens} beside the cu_seqlens of {args.inputs}: the lengths are there twice"
            raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="leave one of them out"))
        if args.until and file.expected:
            file = replace(file, expected={}, notes=("what it expects is of the whole op and is not compared",))
        notes += tuple(f"{args.inputs}: {note}" for note in file.notes)
        seqlens = file.seqlens if seqlens is None else seqlens
        return CommandSubject(
            op, file.inputs, {**file.params, **params}, seqlens, file.io, device, notes, file.expected, file.cotangents
        )
    base = timed_workload(args.workload, device.type, op.whole) if timed else workload(args.workload, device.type)
    inputs = generated(op, base, axes, seqlens, io, device, args)
    return CommandSubject(op, inputs, params, seqlens, io, device, notes)


def part_of(op: Op, until: str, axes: Mapping[str, int]) -> Op:
    """The op up to a stage; sizes of axes that come later are refused."""
    part = op.until(until)
    later = [name for name in axes if name in op.whole.axis_names and name not in part.whole.axis_names]
    if later:
        message = f"--axes: {op.spec.name} up to {until} has no axis {later[0]}"
        raise ChunkwiseError(Diagnostic(codes.BAD_AXES, message, help="leave it out"))
    return part


def refuse_recurrent_gradients(mode: str, backward: bool) -> None:
    """A call that needs gradients runs the chunked form in every mode: the recurrent one would go unseen."""
    if mode == "recurrent" and backward:
        message = "--mode recurrent has no gradients: a call that needs them runs the chunked form"
        help = "leave out --backward to see the recurrent form, and --mode to see the gradients"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))


def refuse_options_beside_a_file(args, op: Op, axes: Mapping[str, int]) -> None:
    """Options that shape generated inputs would have no effect: an inputs file brings its own sizes and values."""
    case = getattr(args, "case", "typical")
    ignored = [f"--axes {name}={size}" for name, size in axes.items() if name not in op.spec.axes]
    ignored += [f"--workload {args.workload}"] if args.workload else []
    ignored += [f"--case {case}"] if case != "typical" else []
    ignored += [f"--seed {args.seed}"] if args.seed and not args.backward else []
    if ignored:
        message = f"{ignored[0]} has no effect beside --inputs: the file's tensors are taken as they are"
        help = f"leave it out; --axes still sets {', '.join(op.spec.axes)}" if op.spec.axes else "leave it out"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))


def refuse_another_case(op: Op, case: str) -> None:
    """One whose name would stand in the report, over inputs that are not of it."""
    if case not in (known := cases_of(op.whole)):
        message = f"--case {case} has no effect: no input of {op.spec.name} is what it is about, {CASES[case]}"
        help = f"cases of {op.spec.name} are {', '.join(known)}" if known[1:] else "leave it out"
        if having := having_case(op.spec.name, case):
            help += f"; {' and '.join(having)} can have it"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))


def having_case(name: str, case: str) -> list[str]:
    """Of the pipelines that ship and are called alike, those whose inputs a case can be of."""
    family = [each for each in names() if each.partition("_")[0] == name.partition("_")[0] and each != name]
    return [each for each in family if case in cases_of(load(each).whole)]


def generated(op: Op, base, axes, seqlens, io, device, args) -> dict[str, torch.Tensor | None]:
    case = getattr(args, "case", "typical")
    refuse_another_case(op, case)
    sizes = input_sizes(op.whole, base, axes, seqlens)
    sizes = complete(op.whole, sizes, len(seqlens) if seqlens is not None else None)
    return make_inputs(op.whole, sizes, io, device, args.seed, case)


def pick_device(args) -> torch.device:
    """The device asked for; else a GPU where there is one and the back end can use it."""
    if args.device is None:
        cpu = args.backend == "interpret" or not torch.cuda.is_available()
        if cpu and args.backend == "triton":
            help = "--backend reference runs in PyTorch, --backend interpret runs the kernels on the CPU"
            raise ChunkwiseError(
                Diagnostic(codes.NO_GPU, "the triton back end needs a GPU, and there is none", help=help)
            )
        return torch.device("cpu" if cpu else "cuda:0")
    return read_device(args.device)


def pick_dtype(args, device: torch.device) -> tuple[torch.dtype, tuple[str, ...]]:
    default = "bf16" if device.type == "cuda" else "fp32"
    asked = args.dtype or default
    if args.backend == "interpret" and asked != "fp32":
        return torch.float32, (f"the interpreter computes in fp32; {asked} inputs are generated as fp32",)
    return IO_DTYPES[asked], ()
