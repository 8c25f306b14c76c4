"""``bench``: how long every stage and the whole op take, against what the device could do and against others."""

from ..benching.bench import bench
from ..benching.csv_table import csv_text
from ..benching.peers import names
from ..benching.record import FILE, NOT_VERIFIED
from ..benching.store import Store
from ..benching.tables import markdown, tables
from ..diagnostics import codes
from ..parallel.torchrun import refuse_ranks
from ..report_page.write_report import write_report
from ..reporting.outcome import Outcome, Progress
from ..reporting.write_file import write_file
from ._bench_cases import bench_cases, peers
from ._case_options import case_options
from ._options import out_folder
from ._tables import table

NAME = "bench"
HELP = "time every stage and the whole op, against the device's limits and against other implementations"
LOUD = "NOT VERIFIED: --no-gate was given. A wrong result can be had in no time; believe none of these figures."


def arguments(parser) -> None:
    parser.add_argument("pipelines", nargs="+", metavar="PIPE", help="names in pipelines/, or paths")
    case_options(parser)
    parser.add_argument("--vs", metavar="fla,eager", help=f"of {', '.join(names())}: on the same tensors, "
                        "in the same run")  # fmt: skip
    parser.add_argument("--no-gate", action="store_true", help="time what was not verified, and say so everywhere")
    parser.add_argument("--out", default="out/bench", metavar="DIR", help=f"where {FILE} and the tables go; it goes on "
                        "where it stopped")  # fmt: skip


def execute(args) -> Outcome:
    refuse_ranks("bench")
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
    page, *parts = write_report(found.records, ops, folder)
    rich = [part for each in shown for part in (table(each.title, aligned(each.columns), each.rows), *each.notes, "")]
    loud = [LOUD] if any(each.gate == NOT_VERIFIED for each in found.records) else []
    said = f"{found.measured} records are new, {len(found.records) - found.measured} were there"
    beside = f"wrote {page}, and beside it {len(parts)} files: plots, trace.json"
    lines = [*loud, *rich, *loud, said, *(f"wrote {path}" for path in (store.path, *files)), beside]
    document = {"records": [each.document for each in found.records], "new": found.measured}
    document["files"] = list(map(str, (store.path, *files, page, *parts)))
    errors = [*found.failures, *found.faults]
    return Outcome(document, lines, errors, exit=codes.exit_code(each.code for each in errors))


def aligned(columns: tuple[str, ...]) -> dict[str, str]:
    """Names left, figures right."""
    left = {"stage", "uses", "implementation", "bound by", "end to end", "scope", "timer, caches"}
    return {name: "left" if name in left else "right" for name in columns}
