"""``compare``: what became faster or slower, as far as the noise of the two measurements allows one to say."""

from argparse import ArgumentTypeError
from pathlib import Path

from ..benching.record import FIRST_CALL, Record, read_records
from ..benching.store import FILE
from ..calling.function import load
from ..comparing.compare_graphs import Difference, difference
from ..comparing.compare_records import Pair, between_implementations, between_pipelines, pairs, unlike
from ..comparing.compare_reports import id_in_new
from ..comparing.verdicts import SLOWER
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..diagnostics.marks import Mark
from ..graphs.wire import did_you_mean
from ..reporting.outcome import Outcome
from ._diff_text import diff_document, diff_lines
from ._options import stage_folders
from ._tables import table

NAME = "compare"
HELP = "say what is faster, slower, the same or unclear: of two files of records, two pipelines, two implementations"
COLUMNS = {"": "left", "scope": "left", "before ms": "right", "after ms": "right", "change": "right", "+-": "right"}


def arguments(parser) -> None:
    parser.add_argument("before", metavar="A", help=f"a {FILE} of bench or its folder; or a pipeline")
    parser.add_argument("after", metavar="B", nargs="?", help="what it is compared with; not beside --implementations")
    parser.add_argument("--implementations", nargs=2, metavar=("X", "Y"), help="two of one file, such as 'fla 0.6.0'")
    parser.add_argument("--records", default="out/bench", metavar="DIR", help="where two pipelines were measured")
    parser.add_argument("--fail-above", type=percent, metavar="PCT", help="exit 1 if something is slower by more")
    stage_folders(parser)


def percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no percentage from 0")
    return value


def execute(args) -> Outcome:
    found, graphs = what_to_compare(args)
    rows = [pair for pair in found if pair.shown.clock.scope != FIRST_CALL]
    slower = [] if args.fail_above is None else regressions(rows, args.fail_above)
    lines = [*(diff_lines(graphs) if graphs else []), *verdict_tables(rows)]
    lines += [f"note: the two were measured with different {each}" for each in unlike(rows)]
    document = {"rows": [pair_document(pair) for pair in rows], "notes": unlike(rows)}
    document |= {"graphs": diff_document(graphs, None, [])} if graphs else {}
    return Outcome(document, lines, slower, exit=codes.exit_code(each.code for each in slower))


def what_to_compare(args) -> tuple[list[Pair], Difference | None]:
    """The pairs; for two pipelines also what their graphs do not have in common."""
    if args.implementations:
        if args.after:
            usage("--implementations compares inside one file", f"leave out {args.after}")
        return of_implementations(records_at(args.before), *args.implementations), None
    if not args.after:
        usage("compare takes two files of records, or two pipelines", "or one file and --implementations X Y")
    if are_records(args.before) or are_records(args.after):
        return pairs(records_at(args.before), records_at(args.after)), None
    graphs = difference(*(load(name, stages=args.stages).whole for name in (args.before, args.after)))
    records = records_at(args.records)
    before, after = (of_pipeline(records, graph.name, args.records) for graph in (graphs.old, graphs.new))
    ids = {record.what.stage: id_in_new(graphs, record.what.stage) for record in before}
    return between_pipelines(before, after, ids), graphs


def usage(message: str, help: str):
    raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))


def are_records(path: str) -> bool:
    """Whatever is there and is no YAML, or is called as records are."""
    where = Path(path)
    return where.suffix == ".jsonl" or where.is_dir() or (where.is_file() and where.suffix not in (".yaml", ".yml"))


def records_at(path: str) -> list[Record]:
    where = Path(path)
    return read_records(where / FILE if where.is_dir() else where)


def of_pipeline(records: list[Record], name: str, where: str) -> list[Record]:
    found = [record for record in records if record.what.pipeline == name]
    if not found:
        usage(f"{where} has no record of {name}", f"chunkwise bench {name} --out {where}")
    return found


def of_implementations(records: list[Record], *wanted: str) -> list[Pair]:
    known = dict.fromkeys(record.what.implementation for record in records)
    for name in wanted:
        if name not in known:
            usage(f"no record is of {name!r}", did_you_mean(name, known) or f"there are {', '.join(map(repr, known))}")
    return between_implementations(records, *wanted)


def regressions(rows: list[Pair], most: float) -> list[Diagnostic]:
    return [
        Diagnostic(codes.REGRESSION, message_of(pair), place_of(pair.after))
        for pair in rows
        if pair.verdict and pair.verdict.word == SLOWER and pair.verdict.change_pct > most
    ]


def message_of(pair: Pair) -> str:
    before, after, found = pair.before, pair.after, pair.verdict
    what = f"{after.what.pipeline}, {after.what.stage} ({after.what.implementation}, {after.clock.scope})"
    times = f"{before.timing.median_ms:.4g} ms before, {after.timing.median_ms:.4g} ms now"
    return f"{what} is slower by {found.change_pct:.1f} %, with a noise of {found.noise_pct:.1f} %: {times}"


def place_of(record: Record) -> Mark | None:
    source = record.what.source
    return source and Mark(source.file, source.line, 1, source.line, 2)


def verdict_tables(rows: list[Pair]) -> list:
    """One for each pipeline and workload."""
    found = {}
    for pair in rows:
        workload = pair.shown.workload
        axes = ", ".join(f"{axis}={size}" for axis, size in workload.axes.items())
        way = ", forward and backward" if workload.backward else ""
        title = f"{pair.shown.what.pipeline}: {workload.dtype}, {workload.mode}, {axes}{way}"
        found.setdefault(title, []).append(verdict_row(pair))
    return [table(f"\n{title}", {**COLUMNS, "verdict": "left"}, lines) for title, lines in found.items()]


def verdict_row(pair: Pair) -> tuple[str, ...]:
    shown, found = pair.shown, pair.verdict
    name = shown.what.stage if shown.what.uses else f"{shown.what.stage}, {shown.what.implementation}"
    times = [f"{each.timing.median_ms:.4f}" if each and each.timing else "-" for each in (pair.before, pair.after)]
    if not found:
        return (name, shown.clock.scope, *times, "", "", why_none(pair))
    return (name, shown.clock.scope, *times, f"{found.change_pct:+.1f} %", f"{found.noise_pct:.1f} %", found.word)


def why_none(pair: Pair) -> str:
    missing = "before" if pair.before is None else "now" if pair.after is None else ""
    return f"not there {missing}" if missing else (pair.after.why or pair.before.why)


def pair_document(pair: Pair) -> dict:
    shown, found = pair.shown, pair.verdict
    facts = {"pipeline": shown.what.pipeline, "stage": shown.what.stage, "scope": shown.clock.scope}
    facts |= {"implementation": [each and each.what.implementation for each in (pair.before, pair.after)]}
    facts |= {"median_ms": [each and each.timing and each.timing.median_ms for each in (pair.before, pair.after)]}
    facts |= {"records": [each and each.id for each in (pair.before, pair.after)]}
    if not found:
        return facts | {"verdict": None, "why": why_none(pair)}
    return facts | {"verdict": found.word, "change_pct": found.change_pct, "noise_pct": found.noise_pct}
