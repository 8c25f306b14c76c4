"""``why``: how the tool came to what it says of an edge, an axis, a unit or a stage."""

import re

import torch

from ..calling.function import Op, load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..explaining.answer import answer_document, answer_text
from ..explaining.facts import Facts
from ..explaining.subjects import explain
from ..graphs.sizes import complete, size_errors
from ..planning.dtypes import IO_DTYPES, name_of
from ..planning.plan import BACKENDS, device_class, resolve_backend
from ..reporting.outcome import Outcome
from ..rewriting.recurrent import SHORT
from ._options import (
    backward_options,
    fixed_axes,
    input_sizes,
    megabytes,
    read_axes,
    read_seqlens,
    stage_folders,
    workload,
)
from ._subject import pick_device, pick_dtype

NAME = "why"
HELP = "say why an edge, axis, unit or stage is as it is: inference, readers, backward, back end"


def arguments(parser) -> None:
    parser.add_argument("pipeline", metavar="PIPE", help="a name in pipelines/, or a path")
    parser.add_argument("subject", metavar="EDGE|AXIS|UNIT|STAGE", help="scan.h, NT, wy/value, scan, or an output")
    parser.add_argument("--axes", default="", metavar="B=1,T=4096", help="sizes of axes, over those of the workload")
    parser.add_argument("--workload", metavar="NAME", help="a named workload (tiny on a CPU)")
    parser.add_argument("--seqlens", metavar="100,0,28", help="lengths of packed sequences (B = 1)")
    parser.add_argument("--dtype", choices=IO_DTYPES, help="IO dtype (bf16 on a GPU, fp32 without)")
    parser.add_argument("--device", metavar="cpu|cuda[:N]|sm_90", help="where it would run; sm_NN need not be here")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="auto: triton on a GPU, reference without")
    backward_options(parser, "names of the rebuild and backward phases too: scan.vjp, d(o)")
    stage_folders(parser)


def execute(args) -> Outcome:
    facts = facts_of(args)
    answers = explain(facts, args.subject)
    where = f"{name_of(facts.io)} on {facts.device}"
    sizes = ", ".join(f"{name}={size}" for name, size in facts.sizes.items())
    lines = [f"{facts.graph.name} at {sizes}; {where}"]
    for answer in answers:
        lines += ["", *answer_text(answer)]
    document = {
        "pipeline": facts.graph.name,
        "sizes": dict(facts.sizes),
        "dtype": name_of(facts.io),
        "device": facts.device,
        "backend": facts.backend,
        "answers": [answer_document(answer) for answer in answers],
    }
    return Outcome(document, lines)


def facts_of(args) -> Facts:
    axes, seqlens, budget = read_axes(args.axes), read_seqlens(args.seqlens), megabytes(args.memory_budget)
    device, device_name = asked_device(args)
    io, _ = pick_dtype(args, device)
    op = fixed_axes(load(args.pipeline, backend=args.backend, stages=args.stages), axes)
    sizes = input_sizes(op.whole, workload(args.workload, device.type), axes, seqlens)
    sizes = complete(op.whole, sizes, len(seqlens) if seqlens is not None else None)
    if found := size_errors(op.whole, sizes):
        raise ChunkwiseError(*found)
    backend = resolve_backend(args.backend, device, io)
    packed = seqlens is not None
    return Facts(op, sizes, io, device_name, args.backend, backend, packed, args.backward, budget, rewritten(op))


def rewritten(op: Op) -> dict[str, str]:
    """Node id -> the rewrite that takes it up, in words."""
    graph, found = op.recurrent(frozenset()), {}
    for node in graph.nodes.values() if graph else ():
        for id in node.replaces:
            others = ", ".join(other for other in node.replaces if other != id)
            when = f"in calls without gradients whose sequences have at most {SHORT} tokens (--mode)"
            found[id] = f"taken up by {node.stage.name}, with {others}, {when}"
    return found


def asked_device(args) -> tuple[torch.device, str]:
    """The device, and its class; a class of GPU alone is enough to ask its launchers."""
    if args.device and args.device.startswith("sm_"):
        if not re.fullmatch(r"sm_\d{2,3}", args.device):
            message = f"--device {args.device!r} is no class of GPUs"
            raise ChunkwiseError(Diagnostic(codes.USAGE, message, help="write sm_80, sm_90 or sm_100"))
        return torch.device("cuda"), args.device
    device = pick_device(args)
    return device, device_class(device)
