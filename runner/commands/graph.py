"""``graph``: the pipeline as a picture, types on its edges."""

import re
from argparse import ArgumentTypeError

from ..calling.function import load
from ..drawing.draw import FORMATS, draw
from ..graphs.sizes import complete
from ..parallel.cut import tokens_of
from ..parallel.exchange_stage import ranks_on_paper
from ..parallel.split_graph import reach_of, sizes_of, split_graph
from ..planning.dtypes import IO_DTYPES
from ..reporting.outcome import Outcome
from ..reporting.write_file import write_file
from ._options import HEADS, fixed_axes, input_sizes, out_folder, read_axes, read_seqlens, stage_folders, workload

NAME = "graph"
HELP = "draw the pipeline: shapes, dtypes and units on its edges, width by bytes"


def arguments(parser) -> None:
    parser.add_argument("pipeline", metavar="PIPE", help="a name in pipelines/, or a path")
    parser.add_argument("--format", choices=FORMATS, default="svg", help="svg (by default), dot or mermaid")
    parser.add_argument("--backward", action="store_true", help="with the rebuild and backward phases")
    parser.add_argument("--ranks", type=rank_count, metavar="N", help="as one of N ranks runs it, its sequences cut")
    parser.add_argument("--axes", default="", metavar="B=1,T=4096", help=f"sizes in numbers on the edges; {HEADS}")
    parser.add_argument("--workload", metavar="NAME", help="the same, from a named workload")
    parser.add_argument("--seqlens", metavar="100,0,28", help="the same, for packed sequences")
    parser.add_argument("--dtype", choices=IO_DTYPES, help="the IO dtype by name on the edges")
    parser.add_argument("--until", metavar="STAGE", help="only what this stage needs")
    parser.add_argument("--out", default="out", metavar="DIR", help="the file is DIR/PIPE/drawing.svg; - prints it")
    stage_folders(parser)


def rank_count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text) or text == "1":
        raise ArgumentTypeError(f"{text!r} is no number of ranks from 2")
    return int(text)


def execute(args) -> Outcome:
    axes, seqlens = read_axes(args.axes), read_seqlens(args.seqlens)
    op = load(args.pipeline, stages=args.stages)
    op = fixed_axes(op.until(args.until) if args.until else op, axes)
    graph, sizes = op.whole, {}
    if args.axes or args.workload or seqlens is not None:
        base = workload(args.workload, "cpu")
        sizes = complete(graph, input_sizes(graph, base, axes, seqlens), len(seqlens) if seqlens is not None else None)
    if args.backward:
        graph = op.trainable_graph()
    if args.ranks:
        reach = reach_of(args.ranks, args.ranks)
        graph = split_graph(graph, op.stages, ranks_on_paper(args.ranks), reach)
        lanes, rows = 1 if seqlens else sizes.get("N", 0), args.ranks * tokens_of(sizes) if sizes else 0
        sizes |= sizes_of(op.whole, reach, args.ranks, lanes, rows) if sizes else {}
    drawing = draw(graph, args.format, sizes=sizes, io_dtype=args.dtype)
    if args.out == "-":
        return Outcome({"pipeline": graph.name, "format": drawing.format, "text": drawing.text}, [drawing.text])
    path = out_folder(args.out, graph.name) / f"drawing.{drawing.suffix}"
    write_file(path, drawing.text)
    notes = [f"note: {drawing.note}"] if drawing.note else []
    document = {"pipeline": graph.name, "format": drawing.format, "files": [str(path)], "notes": notes}
    return Outcome(document, [f"wrote {path}", *notes])
