"""``plan``: what cutting sequences over more ranks than there are at hand would cost and save."""

import json
import re
from argparse import ArgumentTypeError
from dataclasses import asdict, replace
from pathlib import Path

from ..calling.function import load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..parallel.cost_model import Cost, Machine, as_reported, cost, device_of, factors_of
from ..parallel.gather_graph import gathering
from ..parallel.split_graph import cut_errors
from ..planning.dtypes import IO_DTYPES
from ..reporting.outcome import Outcome
from ..workloads import WORKLOADS
from ._options import fixed_axes, fusion_option, input_sizes, read_axes, stage_folders, workload
from ._tables import table

NAME = "plan"
HELP = "predict what cutting sequences over many ranks costs and saves, for a machine given in numbers"
COLUMNS = (
    "rows each: tokens of a rank; ms of one call, on the slowest rank; MB in: 10^6 bytes that come from other ranks;",
    "merge, depth: maps applied one after the other; speed-up: over one rank; each: the speed-up per rank",
)
"""What stands in the table, below it."""
PAYS = 0.5
"""Splitting is said to pay while each rank does at least so much of what it would do alone."""


def arguments(parser) -> None:
    parser.add_argument("pipeline", metavar="PIPE", help="a name in pipelines/, or a path")
    stage_folders(parser)
    parser.add_argument(
        "--ranks", type=ranks, metavar="2..1024", help="doubled, or one number; without it no more than tokens"
    )
    parser.add_argument(
        "--axes", default="", metavar="T=131072,H=16", help="sizes, over the workload's; T of all ranks"
    )
    parser.add_argument("--workload", metavar="NAME", help=f"one of {', '.join(WORKLOADS)}")
    parser.add_argument("--dtype", choices=IO_DTYPES, default="bf16", help="IO dtype")
    parser.add_argument("--backward", action="store_true", help="forward, rebuild and backward")
    parser.add_argument(
        "--report", metavar="FILE", help="report.json of run on one device: its times in place of peaks, its fusions"
    )
    fusion_option(parser)
    for name, unit in (("tflops", "TFLOP/s"), ("gbps", "GB/s of memory"), ("link-gbps", "GB/s"), ("link-us", "us")):
        default = getattr(Machine, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=positive, default=default, help=f"{unit} ({default:g}, an H200)")


def ranks(text: str) -> tuple[int, ...]:
    """``2..1024``: 2, 4, 8, .. as far as 1024."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})(?:\.\.([1-9][0-9]{0,5}))?", text)
    if not found:
        raise ArgumentTypeError(f"{text!r} is no number of ranks, nor a range as 2..1024")
    number, last = int(found[1]), int(found[2] or found[1])
    counts = [number << shift for shift in range(21) if number << shift <= last]
    if not counts:
        raise ArgumentTypeError(f"{text!r} ends before it starts")
    return tuple(counts)


def positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e12:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def execute(args) -> Outcome:
    axes = read_axes(args.axes)
    op = fixed_axes(load(args.pipeline, stages=args.stages, mode="chunk", fuse=args.fuse), axes)
    if found := cut_errors(op.whole, op.stages):
        raise ChunkwiseError(*found)
    sizes, io = input_sizes(op.whole, workload(args.workload, "cuda"), axes, None), IO_DTYPES[args.dtype]
    machine = Machine(args.tflops, args.gbps, args.link_gbps, args.link_us)
    factors, basis = {}, "peaks alone, which no kernel reaches: pass --report"
    if args.report:
        report = read_report(args.report, op)
        op, machine = as_reported(op, report), replace(machine, device=device_of(report))
        factors, basis = factors_of(op, report, machine, io), basis_of(report)
    one = cost(op, sizes, io, 1, machine, args.backward, factors)
    asked = args.ranks or [count for count in ranks("2..1024") if count <= one.rows]
    many = (cost(op, sizes, io, count, machine, args.backward, factors) for count in asked if count > 1)
    costs = [one, *many]
    document = {
        "pipeline": op.spec.name, "axes": sizes, "dtype": args.dtype, "backward": args.backward,
        "machine": asdict(machine), "measured": bool(factors),
        "ranks": [{**asdict(each), "total_ms": each.total_ms, "speedup": speedup(costs[0], each)} for each in costs],
    }  # fmt: skip
    below = lines(costs, machine, basis, bool(gathering(op.whole)))
    return Outcome(document, [cost_table(op.spec.name, sizes, costs), *below])


def read_report(path: str, op) -> dict:
    """The report of a run of this pipeline on one device."""
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
        known = report["pipeline"] == op.spec.name and report["stages"] and "ranks" not in report
        known = known and isinstance(report["environment"], dict)
    except (OSError, ValueError, TypeError, KeyError):
        known = False
    if not known:
        message = f"--report {path} is not the report of a run of {op.spec.name} on one device"
        raise ChunkwiseError(Diagnostic(codes.RUN_REPORT, message, help=f"chunkwise run {op.spec.name} writes it"))
    return report


def speedup(one: Cost, many: Cost) -> float:
    return one.total_ms / many.total_ms if many.total_ms else 1.0


def cost_table(name: str, sizes, costs: list[Cost]):
    title = f"{name}: {', '.join(f'{axis}={size}' for axis, size in sizes.items())}"
    heads = (
        "ranks",
        "rows each",
        "compute ms",
        "link ms",
        "MB in",
        "merge ms",
        "depth",
        "total ms",
        "speed-up",
        "each",
    )
    rows = [
        (
            str(each.ranks), str(each.rows), f"{each.compute_ms:.3f}", f"{each.link_ms:.3f}", f"{each.bytes / 1e6:.3g}",
            f"{each.merge_ms:.3f}", str(each.depth), f"{each.total_ms:.3f}", f"{speedup(costs[0], each):.2f}",
            f"{100 * speedup(costs[0], each) / each.ranks:.1f} %",
        )
        for each in costs
    ]  # fmt: skip
    return table(title, dict.fromkeys(heads, "right"), rows)


def basis_of(report: dict) -> str:
    """What was measured: at other sizes, or elsewhere, it is worth less."""
    at = " ".join(f"{axis}={size}" for axis, size in report["axes"].items())
    return f"each stage's time in a report of {report['environment'].get('device')}, {report['dtype']}, {at}"


def lines(costs: list[Cost], machine: Machine, basis: str, gathers: bool) -> list[str]:
    paying = [each.ranks for each in costs if speedup(costs[0], each) >= PAYS * each.ranks]
    fastest = min(costs, key=lambda each: each.total_ms)
    worth = f"each rank is worth {100 * PAYS:g} % of one alone up to {max(paying)} ranks"
    if max(paying) == 1:
        worth = f"on no more ranks than one is each worth {100 * PAYS:g} % of one alone"
    attention = ["attention by all keys: a causal mask leaves one rank half of that, the last of many all of it"]
    return [
        *COLUMNS,
        *(attention if gathers else []),
        f"by {basis}",
        f"link {machine.link_gbps:g} GB/s and {machine.link_us:g} us a collective, nothing overlapped",
        f"{worth}; fastest on {fastest.ranks}",
        *notes_of(costs),
    ]


def notes_of(costs: list[Cost]) -> list[str]:
    """Each once, with the numbers of ranks that it is about where that is not all."""
    found = []
    for note in dict.fromkeys(note for each in costs for note in each.notes):
        ranks = [each.ranks for each in costs if note in each.notes]
        where = f"{ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else f"{ranks[0]}"
        found.append(f"note: {note}" if len(ranks) == len(costs) else f"note, ranks {where}: {note}")
    return found
