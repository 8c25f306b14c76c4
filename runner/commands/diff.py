"""``diff``: what two pipelines do not have in common, in words and as one picture of both."""

from ..calling.function import load
from ..comparing.compare_graphs import Difference, difference
from ..comparing.compare_reports import Report, read_report, rows
from ..drawing.build_diff_picture import build_diff_picture
from ..drawing.draw import FORMATS, draw_picture
from ..reporting.outcome import Outcome
from ..reporting.write_file import write_file
from ._diff_text import diff_document, diff_lines, time_notes, times_table
from ._options import out_folder, stage_folders

NAME = "diff"
HELP = "what two pipelines do not have in common; exit code 0: nothing, 1: something, 2: trouble"


def arguments(parser) -> None:
    parser.add_argument("old", metavar="A", help="a name in pipelines/, or a path")
    parser.add_argument("new", metavar="B", help="the one to compare it with")
    parser.add_argument("--reports", nargs=2, metavar=("A.json", "B.json"), help="report.json of a run of each: times")
    parser.add_argument("--format", choices=FORMATS, default="svg", help="of the picture (svg by default)")
    parser.add_argument("--out", default="out", metavar="DIR", help="the picture goes to DIR/B/; - writes none")
    stage_folders(parser)


def execute(args) -> Outcome:
    found = difference(*(load(name, stages=args.stages).whole for name in (args.old, args.new)))
    graphs, reports = (found.old, found.new), args.reports or ()
    times = tuple(read_report(path, graph.name) for path, graph in zip(reports, graphs))
    lines = [*diff_lines(found), *time_lines(found, times)]
    files = []
    if args.out != "-":
        drawing = draw_picture(build_diff_picture(found, time_words(found, times)), args.format)
        path = out_folder(args.out, found.new.name) / f"diff.{drawing.suffix}"
        write_file(path, drawing.text)
        files = [str(path)]
        lines += ["", f"wrote {path}", *([f"note: {drawing.note}"] if drawing.note else [])]
    return Outcome(diff_document(found, times or None, files), lines, exit=int(bool(found.changes)))


def time_lines(found: Difference, times: tuple[Report, ...]) -> list:
    return [times_table(found, *times), *time_notes(*times)] if times else []


def time_words(found: Difference, times: tuple[Report, ...]) -> dict[str, str]:
    """What the picture says of the time of each stage: before and after, or the one that there is."""
    shown = rows(found, *times) if times else ()
    both = {row.id: [ms for ms in (row.before, row.after) if ms is not None] for row in shown}
    return {name: " -> ".join(f"{ms:.3g}" for ms in each) + " ms" for name, each in both.items()}
