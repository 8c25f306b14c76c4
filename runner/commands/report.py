"""``report``: records as a page that opens anywhere, with its plots and a trace beside it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..benching.record import Record, read_some_records
from ..calling.function import Op, load
from ..diagnostics.errors import ChunkwiseError
from ..report_page.write_report import write_report
from ..reporting.outcome import Outcome
from ._options import out_folder, stage_folders

NAME = "report"
HELP = "make one HTML page of the records that bench wrote, with plots and a trace for Perfetto"


def arguments(parser) -> None:
    parser.add_argument("records", metavar="RECORDS.jsonl", help="what bench wrote, or its folder")
    parser.add_argument("--out", default="out", metavar="DIR", help="where report.html goes: DIR/report/")
    stage_folders(parser)


def execute(args) -> Outcome:
    records = read_some_records(args.records)
    folder = out_folder(args.out, "report")
    pipelines, notes = pipelines_of(records, args.stages)
    files = write_report(records, pipelines, folder)
    document = {"records": len(records), "files": [str(path) for path in files], "notes": notes}
    wrote = f"wrote {files[0]}, and beside it {len(files) - 1} files: plots, trace.json"
    return Outcome(document, [*(f"note: {note}" for note in notes), wrote])


def pipelines_of(records: Iterable[Record], stages: Sequence[str]) -> tuple[dict[str, Op], list[str]]:
    """(pipeline -> its op as its file is now, notes on those whose file is not at hand)."""
    places: dict[str, dict[str, None]] = {}
    for record in records:
        found = places.setdefault(record.what.pipeline, {record.what.pipeline: None})
        found |= {record.what.source.file: None} if record.what.source else {}
    ops = {name: op for name, tried in places.items() if (op := first_op(name, tried, stages))}
    missing = [name for name in places if name not in ops]
    return ops, [f"the file of {name} is not at hand: the page has neither its graph nor its text" for name in missing]


def first_op(name: str, places: Iterable[str], stages: Sequence[str]) -> Op | None:
    """Of the places where a record's stages stand, the first file of that pipeline: a stage may come from one that it
    extends."""
    for place in places:
        try:
            op = load(place if place == name else Path(place), stages=stages)
        except ChunkwiseError:
            continue
        if op.spec.name == name:
            return op
    return None
