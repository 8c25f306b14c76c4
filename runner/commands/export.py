"""``export``: the pipeline as one Python file that runs without the runner."""

from pathlib import Path

from ..calling.function import load
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..exporting.export import BACKENDS, export
from ..reporting.outcome import Outcome
from ..reporting.write_file import write_file
from ._options import fixed_axes, read_axes, stage_folders

NAME = "export"
HELP = "write the pipeline as one plain Python file, with its gradient, that runs without the runner"


def arguments(parser) -> None:
    parser.add_argument("pipeline", metavar="PIPE", help="a name in pipelines/, or a path")
    parser.add_argument("-o", "--out", dest="file", default="-", metavar="FILE", help="where to write it; - prints it")
    parser.add_argument("--backend", choices=BACKENDS, default="triton", help="triton (by default) or reference")
    parser.add_argument("--outputs", metavar="o,final_state", help="what the function returns, all by default")
    parser.add_argument("--without", default="", metavar="NAME", help="optional inputs that the function does not have")
    parser.add_argument("--axes", default="", metavar="C=32", help="other sizes for axes that the pipeline fixes")
    stage_folders(parser)


def execute(args) -> Outcome:
    op, axes = load(args.pipeline, stages=args.stages), read_axes(args.axes)
    for name in axes:
        if name not in op.spec.axes:
            help = f"it fixes {', '.join(op.spec.axes) or 'none'}; other sizes are those of the tensors"
            raise ChunkwiseError(Diagnostic(codes.BAD_AXES, f"--axes: {op.spec.name} does not fix {name}", help=help))
    outputs = None if args.outputs is None else split("--outputs", args.outputs)
    without = split("--without", args.without) if args.without else []
    text = export(fixed_axes(op, axes), args.backend, outputs, without)
    if args.file == "-":
        return Outcome({"pipeline": op.spec.name, "backend": args.backend, "text": text}, [text.removesuffix("\n")])
    write_file(Path(args.file), text)
    return Outcome({"pipeline": op.spec.name, "backend": args.backend, "files": [args.file]}, [f"wrote {args.file}"])


def split(option: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ChunkwiseError(Diagnostic(codes.USAGE, f"{option} {text!r} names nothing", help="leave it out"))
    return names
