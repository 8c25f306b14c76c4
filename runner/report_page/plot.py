"""What every plot shares: colours that follow the page, fonts, and its two files."""

import io
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from .inline_svg import inline

INK, FAINT, GRID, PAGE = "#1f2328", "#57606a", "#d8dee4", "#fefefe"
SERIES = ("#0b62b8", "#b3520c", "#2b7a3d", "#8a3ab9", "#a31d4b", "#4b6070")
COLOURS = {INK: "var(--ink)", FAINT: "var(--faint)", GRID: "var(--grid)", PAGE: "var(--page)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)
}
"""A colour of the files -> that of the page, which has a light and a dark one."""
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "chunkwise",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True,
}
WIDTH = 7.2
"""Inches."""
DECADE = 10


@dataclass(frozen=True)
class Plot:
    """name: of its files. alt: what it shows, in a sentence, for those who do not see it. png: on white."""

    name: str
    title: str
    alt: str
    svg: str
    png: bytes

    @property
    def on_page(self) -> Markup:
        return Markup(inline(self.svg, f"{self.name}-", COLOURS))


def plot(name: str, title: str, alt: str, height: float, paint: Callable) -> Plot:
    """paint: is handed the axes of an empty figure. height: inches."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height))
        paint(figure.add_subplot())
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=160, facecolor="white")
    return Plot(name, title, alt, svg.getvalue(), png.getvalue())


def plain_numbers(axis, form: str) -> None:
    """0.6 in place of 6 x 10^-1 on a logarithmic axis; between powers of ten only where they leave room. form: as of
    format()."""
    low, high = axis.get_view_interval()
    axis.set_major_formatter(lambda value, _: format(value, form))
    axis.set_minor_formatter(lambda value, _: format(value, form) if high < DECADE * low else "")


def series_colours(names) -> dict[str, str]:
    """A colour for each name, in the order in which they come."""
    return {name: SERIES[n % len(SERIES)] for n, name in enumerate(dict.fromkeys(names))}
