"""``warmup``: compile what a call launches, ahead of time, so that the first one does not wait for it."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace

import torch

from ...stages._contract import Launch
from ...stages._seqs import Seqs
from ..calling.call import Call
from ..calling.function import Op, load
from ..compiling.compile_kernel import SHARED_LIMIT, last_line
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.sizes import complete, shape
from ..launching.compile_ahead import Compilation, bare_buffer, compilations, compile_ahead, launches_of
from ..launching.target import target
from ..planning.dtypes import IO_DTYPES, port_dtype
from ..planning.plan import buffer_of, device_class, require_triton
from ..planning.sequences import host_tables, seqs_of
from ..reporting.outcome import Outcome
from ..rewriting.recurrent import MODES
from ._bench_cases import left_out
from ._options import fixed_axes, fusion_option, input_sizes, read_axes, read_seqlens, stage_folders, workload
from ._subject import refuse_recurrent_gradients
from ._tables import table

NAME = "warmup"
HELP = "compile what a call of a pipeline launches, ahead of time, into Triton's cache"


def arguments(parser) -> None:
    parser.add_argument("pipeline", metavar="PIPE", help="a name in pipelines/, or a path")
    stage_folders(parser)
    help = "widths and heads of the calls to come; kernels are the same for every B, and every T above 64"
    parser.add_argument("--axes", default="", metavar="K=128,V=128", help=help)
    parser.add_argument("--dtype", choices=IO_DTYPES, default="bf16", help="IO dtype (bf16)")
    parser.add_argument("--arch", type=int, choices=SHARED_LIMIT, help="of a GPU that is not here (90: sm_90)")
    parser.add_argument("--mode", choices=MODES, default="auto", help="as in run")
    fusion_option(parser)
    parser.add_argument("--backward", action="store_true", help="calls with gradients, and their backward pass")
    parser.add_argument("--seqlens", metavar="100,0,28", help="calls with packed sequences, of any lengths")
    parser.add_argument("--without", metavar="NAME,...", help="optional inputs and outputs to leave out")


def execute(args) -> Outcome:
    if args.arch is None and not torch.cuda.is_available():
        message = "warmup compiles for the GPU that is here, and there is none"
        help = "--arch 90 compiles for one that is elsewhere: its cache folder, TRITON_CACHE_DIR, can be taken there"
        raise ChunkwiseError(Diagnostic(codes.NO_GPU, message, help=help))
    require_triton("triton")
    refuse_recurrent_gradients(args.mode, args.backward)
    device = torch.device("cuda", torch.cuda.current_device() if args.arch is None else 0)
    with target(args.arch) if args.arch else nullcontext(), compilations() as found:
        start = time.perf_counter()
        calls = calls_of(args, device)
        launches = (launch for call in calls for launch in all_launches(call, args.backward))
        errors = compile_ahead(launches, None if args.arch else device)
        seconds, kind = time.perf_counter() - start, device_class(device)
    name = calls[0].graph.name
    document = {"pipeline": name, "device_class": kind, "seconds": round(seconds, 2),
                "kernels": [asdict(each) for each in found]}  # fmt: skip
    rows = [kernel_table(name, kind, found), summary(found, seconds)]
    if not errors:
        return Outcome(document, rows)
    failed = [Diagnostic(codes.LAUNCH_FAILED, f"a kernel does not compile: {last_line(each)}") for each in errors]
    return Outcome.of_errors(failed, document, rows)


def calls_of(args, device: torch.device) -> list[Call]:
    """A call as the options describe it, on tensors without memory; one by chunks and one by token where both may come:
    auto takes the second for short sequences without gradients."""
    axes, seqlens = read_axes(args.axes), read_seqlens(args.seqlens)
    op = load(args.pipeline, backend="triton", stages=args.stages, mode=args.mode, fuse=args.fuse)
    op = fixed_axes(op, axes)
    sizes = input_sizes(op.whole, workload(None, "cuda"), axes, seqlens)
    sizes = complete(op.whole, sizes, len(seqlens) if seqlens is not None else None)
    absent = left_out(args.without, op)
    both = args.mode == "auto" and not args.backward and op.recurrent(absent_inputs(op, absent))
    ops = [op.with_mode("chunk"), op.with_mode("recurrent")] if both else [op]
    return [bare_call(each, sizes, seqlens, IO_DTYPES[args.dtype], device, absent) for each in ops]


def absent_inputs(op: Op, absent: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for name in op.spec.inputs if name in absent)


def bare_call(op: Op, sizes, seqlens, io: torch.dtype, device: torch.device, absent: tuple[str, ...]) -> Call:
    graph = op.graph(absent_inputs(op, absent))
    tensors = {
        name: None if name in absent else bare_buffer(shape(value.axes, sizes), port_dtype(value.dtype, io))
        for name, value in graph.inputs.items()
    }
    wanted = {name: value for name, value in graph.outputs.items() if value and name not in absent}
    return op.call(graph, tensors, {}, sizes, None, seqlens, io, device, wanted)


def all_launches(call: Call, backward: bool) -> Iterator[Launch]:
    """Of the forward pass; with gradients of both passes."""
    seqs = seqs_for(call)
    if not backward:
        yield from launches_of(call.forward_plan(), call.tensors, call.params, seqs)
        return
    joint = call.joint(call.trainable(), call.wanted)
    between = (*joint.kept, *joint.cotangents.values())
    buffers = {name: buffer_of(joint.values[name], call.sizes, call.io) for name in between}
    given = {name: bare_buffer(buffer.shape, buffer.dtype) for name, buffer in buffers.items()}
    yield from launches_of(call.forward_plan(joint), call.tensors, call.params, seqs)
    yield from launches_of(call.backward_plan(joint), {**call.tensors, **given}, call.params, seqs)


def seqs_for(call: Call) -> Seqs:
    """With tables on the host: none of them is read."""
    seqs = seqs_of(None, call.sizes)
    if call.packing is None:
        return seqs
    cu_seqlens, chunk_table, chunk_offsets = host_tables(call.packing.lengths, seqs.NT, seqs.C)
    return replace(seqs, cu_seqlens=cu_seqlens, chunk_table=chunk_table, chunk_offsets=chunk_offsets)


def kernel_table(name: str, kind: str, found: list[Compilation]):
    rows = [(each.kernel, f"{each.seconds:.2f}", "in the cache" if each.cached else "compiled") for each in found]
    return table(f"{name} on {kind}", {"kernel": "left", "seconds": "right", "": "left"}, rows)


def summary(found: list[Compilation], seconds: float) -> str:
    count = sum(not each.cached for each in found)
    kernels = "1 kernel" if count == 1 else f"{count} kernels"
    return f"{kernels} compiled, {len(found) - count} were in the cache; {seconds:.1f} s by the clock, several at once"
