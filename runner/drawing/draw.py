"""A graph as a picture in one of three languages.

A command writes it like this; ``drawing.note`` says why it is not the format that was asked for:

    drawing = draw(graph, "svg", sizes=plan.sizes, times=times, io_dtype="bf16", backends=backends)
    write_file(folder / f"graph.{drawing.suffix}", drawing.text)
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..graphs.graph import Graph
from .build_picture import build_picture
from .draw_dot import dot_text
from .draw_mermaid import mermaid_text
from .draw_svg import svg_text
from .layout import NoLayout, lay_out
from .picture import Picture

FORMATS = ("svg", "dot", "mermaid")
SUFFIXES = {"svg": "svg", "dot": "dot", "mermaid": "mmd"}

MOST_STAGES = 150
"""Graphviz's time grows with the cube: 20 s for so many in a dense graph, and it cannot be interrupted."""


@dataclass(frozen=True)
class Drawing:
    """format: what text is in. note: why this is DOT though SVG was asked for, else None."""

    text: str
    format: str
    note: str | None = None

    @property
    def suffix(self) -> str:
        """What a file name ends with, without the dot."""
        return SUFFIXES[self.format]


def draw(
    graph: Graph,
    format: str = "svg",
    *,
    sizes: Mapping[str, int] | None = None,
    times: Mapping[str, float] | None = None,
    io_dtype: str | None = None,
    backends: Mapping[str, str] | None = None,
) -> Drawing:
    """The graph as text, the same bytes for the same arguments.

    format: one of FORMATS. sizes: axis -> number; an axis that is missing stays a name. times: node id -> latency
    in ms. io_dtype: a key of dtypes.IO_DTYPES. backends: node id -> what runs it.
    """
    return draw_picture(build_picture(graph, sizes, times, io_dtype, backends), format)


def draw_picture(shown: Picture, format: str) -> Drawing:
    """A picture that is built already, as text."""
    if format == "mermaid":
        return Drawing(mermaid_text(shown), format)
    dot = dot_text(shown)
    if format == "dot":
        return Drawing(dot, format)
    if len(shown.stages) > MOST_STAGES:
        layout = NoLayout(f"{len(shown.stages)} stages are more than the {MOST_STAGES} that are laid out")
    else:
        layout = lay_out(dot)
    if isinstance(layout, NoLayout):
        return Drawing(dot, "dot", f"no SVG, the DOT text instead: {layout.reason}")
    return Drawing(svg_text(shown, layout), format)
