"""The graph of a run as a file: an SVG where a renderer is there, else the DOT text and a line that says so."""

from pathlib import Path

from ..calling.call import Call
from ..planning.dtypes import name_of
from ..reporting.timing import Timings
from ..reporting.write_file import write_file
from .draw import draw


def save_svg(folder: Path, call: Call, timings: Timings) -> tuple[Path, tuple[str, ...]]:
    """Write ``graph.svg`` or ``graph.dot`` with the times on its nodes. Gives the file and notes for the user."""
    drawing = draw(
        timings.graph,
        "svg",
        sizes=call.sizes,
        times={stage.id: stage.timing.median_ms for stage in timings.stages},
        io_dtype=name_of(call.io),
        backends={stage.id: stage.backend for stage in timings.stages},
    )
    path = folder / f"graph.{drawing.suffix}"
    write_file(path, drawing.text)
    return path, (drawing.note,) if drawing.note else ()
