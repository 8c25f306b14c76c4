"""``bench``: how long every stage and the whole op take, against what the device could do and against others."""

from ..benching.bench import bench
from ..benching.csv_table import csv_text
from ..benching.record import NOT_VERIFIED
from ..benching.store import FILE, Store
from ..benching.tables import markdown, tables
from ..diagnostics import codes
from ..planning.dtypes import IO_DTYPES
from ..planning.plan import BACKENDS
from ..report_page.write_report import write_report
from ..reporting.outcome import Outcome, Progress
from ..reporting.write_file import write_file
from ..rewriting.recurrent import MODES
from ..workloads import WORKLOADS
from ._bench_cases import SWEEP_HELP, bench_cases, peers
from ._options import HEADS, backward_options, fusion_option, out_folder, seed, stage_folders
from ._tables import table

NAME = "bench"
HELP = "time every stage and the whole op, against the device's limits and against other implementations"
LOUD = "NOT VERIFIED: --no-gate was given. A wrong result can be had in no time; believe none of these figures."


def arguments(parser) -> None:
    parser.add_argument("pipelines", nargs="+", metavar="PIPE", help="names in pipelines/, or paths")
    stage_folders(parser)
    parser.add_argument("--workload", metavar="NAME,...", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--axes", default="", metavar="B=1,T=4096", help=f"sizes, over the workload's; {HEADS}")
    parser.add_argument("--sweep", action="append", default=[], metavar="T=1k..64k*2", help=f"in turn: {SWEEP_HELP}")
    parser.add_argument("--dtype", metavar="bf16,fp32", help=f"of {', '.join(IO_DTYPES)} (bf16 on a GPU, fp32 without)")
    parser.add_argument("--mode", default="auto", metavar="chunk,recurrent", help=f"of {', '.join(MODES)}")
    parser.add_argument("--device", metavar="cpu|cuda[:N]", help="where to run (a GPU if there is one)")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="auto: triton on a GPU, reference without")
    fusion_option(parser)
    parser.add_argument("--seqlens", metavar="100,0,28", help="lengths of packed sequences (B = 1)")
    parser.add_argument("--without", metavar="NAME,...", help="optional inputs and outputs to leave out")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the generated inputs")
    backward_options(parser, "forward, rebuild and backward, each stage of them")
    parser.add_argument("--vs", metavar="fla,eager", help="other implementations, on the same tensors in the same run")
    parser.add_argument("--no-gate", action="store_true", help="time what was not verified, and say so everywhere")
    parser.add_argument("--out", default="out/bench", metavar="DIR", help=f"where {FILE} and the tables go; it goes on "
                        "where it stopped")  # fmt: skip


def execute(args) -> Outcome:
    cases, vs, progress = bench_cases(args), peers(args.vs), Progress()
    folder = out_folder(args.out, "")
    store = Store.of(folder)
    found = bench(cases, store, vs, not args.no_gate, progress)
    progress.done()
    shown = tables(found.records)
    files = {(folder / "table").with_suffix(".md"): markdown(shown), folder / "table.csv": csv_text(found.records)}
    for path, text in files.items():
        write_file(path, text)
    ops = {case.op.spec.name: case.op for case in cases}
    written = [store.path, *files, *write_report(found.records, ops, folder)]
    rich = [part for each in shown for part in (table(each.title, aligned(each.columns), each.rows), *each.notes, "")]
    loud = [LOUD] if any(each.gate == NOT_VERIFIED for each in found.records) else []
    said = f"{found.measured} records are new, {len(found.records) - found.measured} were there"
    lines = [*loud, *rich, *loud, said, *(f"wrote {path}" for path in written)]
    document = {"records": [each.document for each in found.records], "new": found.measured}
    document["files"] = list(map(str, written))
    errors = [*found.failures, *found.faults]
    return Outcome(document, lines, errors, exit=codes.exit_code(each.code for each in errors))


def aligned(columns: tuple[str, ...]) -> dict[str, str]:
    """Names left, figures right."""
    left = {"stage", "uses", "implementation", "bound by", "end to end", "scope", "timer, caches"}
    return {name: "left" if name in left else "right" for name in columns}
