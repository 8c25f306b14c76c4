"""``compare``: what became faster or slower, as far as the noise of the two measurements allows one to say."""

from argparse import ArgumentTypeError
from dataclasses import dataclass, field
from pathlib import Path

from ..benching.record import FILE, FIRST_CALL, Record, read_some_records
from ..benching.wholes import wholes
from ..calling.function import load
from ..comparing.compare_graphs import difference
from ..comparing.compare_records import (
    Pair,
    axes_in_common,
    between_implementations,
    between_pipelines,
    differences,
    pairs,
    unlike,
)
from ..comparing.compare_reports import id_in_new
from ..comparing.trees import is_revision
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..graphs.wire import did_you_mean
from ..reporting.outcome import Outcome
from ._case_options import case_options, given
from ._compare_revisions import documents, headline, race_revisions
from ._compare_text import Sides, regressions, row_documents, verdict_tables
from ._diff_text import diff_document, diff_lines

NAME = "compare"
HELP = (
    "say what is faster, slower, the same or unclear: of two files of records, two pipelines, two implementations, or "
    "two git revisions (--pipe)"
)
ROUNDS, MOST_ROUNDS = 3, 50


def arguments(parser) -> None:
    parser.add_argument("before", metavar="A", help=f"a {FILE} of bench or its folder; a pipeline; with --pipe a git "
                        "revision of this checkout")  # fmt: skip
    parser.add_argument("after", metavar="B", nargs="?", help="what it is compared with: not beside --implementations; "
                        "with --pipe the working tree unless given")  # fmt: skip
    parser.add_argument("--implementations", nargs=2, metavar=("X", "Y"), help="two of one file, such as fla, or by "
                        "their whole names 'fla 0.6.0'")  # fmt: skip
    parser.add_argument("--records", metavar="DIR", help="where two pipelines were measured (out/bench)")
    parser.add_argument("--fail-above", type=percent, metavar="PCT", help="exit 1 if ours is slower by more")
    parser.add_argument("--pipe", action="append", metavar="PIPE", help="A and B are revisions: measure this pipeline "
                        "with the code of each, by turns; may be given again")  # fmt: skip
    parser.add_argument("--rounds", type=rounds, metavar="N", help=f"turns of each revision ({ROUNDS})")
    case_options(parser.add_argument_group("what is measured of two revisions, as bench has it"))


def percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no percentage from 0: write a number, such as 5")
    return value


def rounds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= MOST_ROUNDS):
        raise ArgumentTypeError(f"{text!r} is no number from 1 to {MOST_ROUNDS}")
    return int(text)


@dataclass(frozen=True)
class Compared:
    """lines: above the tables. document: beside the rows. failures: errors of what was measured on the way."""

    pairs: list[Pair]
    sides: Sides = Sides()
    lines: tuple[str, ...] = ()
    document: dict = field(default_factory=dict)
    failures: tuple[Diagnostic, ...] = ()


def execute(args) -> Outcome:
    found = what_to_compare(args)
    rows = [pair for pair in found.pairs if pair.shown.clock.scope != FIRST_CALL]
    notes = unlike(rows)
    errors = [*found.failures, *([] if args.fail_above is None else regressions(rows, args.fail_above, found.sides))]
    lines = [*found.lines, *verdict_tables(rows, found.sides)]
    lines += [f"note: the two were measured with different {each}" for each in notes]
    document = {"rows": row_documents(rows, found.sides), "notes": notes, **found.document}
    return Outcome(document, lines, errors, exit=codes.exit_code(each.code for each in errors))


def what_to_compare(args) -> Compared:
    args.rounds = require_effect(args) or ROUNDS
    if args.pipe:
        return of_revisions(args)
    if args.implementations:
        return of_implementations(args)
    if not args.after:
        help = "or one file and --implementations X Y, or revisions and --pipe PIPE"
        usage("compare takes two files of records, or two pipelines", help)
    if are_records(args.before) or are_records(args.after):
        before, after = (read_some_records(path) for path in (args.before, args.after))
        return Compared(in_common(before, after, pairs(before, after)))
    return of_pipelines(args)


def require_effect(args) -> int | None:
    """Refuses options that would be passed over; --rounds, if given."""
    measured = {name: value for name, value in given(args).items() if name != "--stages"}
    only = {"--rounds": args.rounds, **measured} if args.rounds else measured
    if not args.pipe and only:
        usage(f"{next(iter(only))} has no effect without --pipe: what is there already is compared", "leave it out")
    if args.pipe and (args.implementations or args.records):
        name = "--implementations" if args.implementations else "--records"
        usage(f"{name} has no effect beside --pipe: revisions are measured now", "leave one of them out")
    return args.rounds


def of_revisions(args) -> Compared:
    raced = race_revisions(args)
    before, after = raced.trees
    facts = {"revisions": documents(raced), "rounds": args.rounds}
    sides, lines = Sides.named(before.hash, after.hash), (*headline(raced, args.rounds),)
    return Compared(raced.pairs, sides, lines, facts, raced.failures)


def of_pipelines(args) -> Compared:
    try:
        graphs = difference(*(load(name, stages=args.stages).whole for name in (args.before, args.after)))
    except ChunkwiseError as error:
        if error.diagnostics[0].code == codes.NO_FILE and all(map(is_revision, (args.before, args.after))):
            usage(f"{args.before} and {args.after} are revisions, and nothing says what to measure", "add --pipe PIPE")
        raise
    where = args.records or "out/bench"
    records = read_some_records(where)
    before, after = (of_pipeline(records, graph.name, where) for graph in (graphs.old, graphs.new))
    ids = {record.what.stage: id_in_new(graphs, record.what.stage) for record in before}
    found = in_common(before, after, between_pipelines(before, after, ids))
    names = graphs.old.name, graphs.new.name
    sides = Sides.named(*names, " and ".join(dict.fromkeys(names)), axes_in_common(before, after))
    return Compared(found, sides, tuple(diff_lines(graphs)), {"graphs": diff_document(graphs, None, [])})


def usage(message: str, help: str):
    raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=help))


def are_records(path: str) -> bool:
    """Whatever is there and is no YAML, or is called as records are."""
    where = Path(path)
    return where.suffix == ".jsonl" or where.is_dir() or (where.exists() and where.suffix not in (".yaml", ".yml"))


def in_common(before: list[Record], after: list[Record], found: list[Pair]) -> list[Pair]:
    """Two sets without a figure in common are no comparison: nothing could ever be slower."""
    if not any(pair.before and pair.after for pair in found):
        what = "; ".join(differences(before, after))
        usage(f"the two have no figure in common; those that are closest differ in {what}", "measure the same of both")
    return found


def of_pipeline(records: list[Record], name: str, where: str) -> list[Record]:
    found = [record for record in records if record.what.pipeline == name]
    if not found:
        usage(f"{where} has no record of {name}", f"chunkwise bench {name} --out {where}")
    return found


def of_implementations(args) -> Compared:
    if args.after:
        usage("--implementations compares inside one file", f"leave out {args.after}")
    records = read_some_records(args.before)
    known = list(dict.fromkeys(wholes(records).values()))
    first, second = (implementation(name, known) for name in args.implementations)
    if first == second:
        usage(f"--implementations names {first} twice", f"there are {', '.join(map(repr, known))}")
    found = between_implementations(records, first, second)
    if not found:
        usage(f"{first} and {second} have no figure in common", "time both in one run: bench --vs")
    return Compared(found, Sides.named(first, second))


def implementation(name: str, known: list[str]) -> str:
    """By its whole name, or by the first word of it where that means one alone."""
    if name in known:
        return name
    meant = [each for each in known if each.split()[0] == name]
    if len(meant) == 1:
        return meant[0]
    help = did_you_mean(name, known) or f"there are {', '.join(map(repr, known))}"
    return usage(f"{len(meant) or 'no'} implementations are {name!r}" if meant else f"no record is of {name!r}", help)
