"""A picture as SVG, painted over Graphviz's coordinates.

Graphviz gives the places and the curves; the boxes are painted here, because a record of Graphviz has one font and
one colour. Colours stand in attributes, for every viewer and printer, and a style sheet turns them for viewers that
ask for a dark page. Tooltips are ``<title>`` elements. Every text is escaped.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from html import escape

from . import palette
from .draw_dot import (
    FONT_SIZE,
    NAME_SIZE,
    arrow_width,
    law_lines,
    legend_words,
    node_name,
    port_label,
    remark_lines,
    stage_fill,
    stage_line_colour,
    stage_lines,
    tensor_colours,
    tensor_lines,
    title_lines,
    unit_lines,
)
from .layout import Curve, Layout, Point, Rect
from .picture import ABSENT, ADDED, OUTPUT, PLAIN, REMOVED, STAGE, VALUE, Arrow, Picture, StageBox, TensorBox

FONTS = "ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', 'Liberation Mono', Consolas, monospace"
MARGIN = 14
LINE = 1.2 * FONT_SIZE
BAR = 3
"""Points of a time bar's height."""
DASHES = "5 3"
DOTS = "1.5 2.5"
THICK = 2.2
"""Points of the line around what only the second of two graphs has."""


def svg_text(picture: Picture, layout: Layout) -> str:
    """The whole document, the same bytes for the same picture and layout."""
    page = layout.page
    left, top, width, height = page.left - MARGIN, page.top - MARGIN, page.right + MARGIN, page.bottom + MARGIN
    width, height = width - left, height - top
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}pt" height="{number(height)}pt"'
        f' viewBox="{number(left)} {number(top)} {number(width)} {number(height)}" role="img"'
        f' font-family="{FONTS}" font-size="{FONT_SIZE}">',
        f"<title>{escape(picture.name)}</title>",
        f"<desc>{escape(picture.summary)}</desc>",
        dark_style(),
        element("rect", x=left, y=top, width=width, height=height, fill=palette.PAGE),
        *title(picture, page),
    ]
    for phase in picture.phases:
        if f"cluster_{phase}" in layout.groups:
            lines += group_box(phase, layout.groups[f"cluster_{phase}"])
    for index, arrow in enumerate(picture.arrows):
        lines += arrow_group(index, arrow, layout.curves[f"arrow-{index}"])
    for box in picture.tensors:
        lines += tensor_group(box, layout.boxes[node_name(box.kind, box.name)])
    for stage in picture.stages:
        name = node_name(STAGE, stage.id)
        lines += stage_group(stage, layout.boxes[name], layout.fields[name])
    return "\n".join([*lines, "</svg>"]) + "\n"


def dark_style() -> str:
    """Rules that turn each light colour where a viewer prefers dark; attributes yield to them."""
    rules = (
        f'[{attribute}="{light}"]{{{attribute}:{dark}}}'
        for light, dark in palette.DARK.items()
        for attribute in ("fill", "stroke")
    )
    return "<style>@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}</style>"


def title(picture: Picture, page: Rect) -> list[str]:
    name, *others = title_lines(picture)
    result = [text(name, (page.left, page.top + 8), palette.TEXT, "start", bold=True, size=15)]
    summary = len(others) - len(picture.facts) - bool(picture.changes)
    for index, line in enumerate(others):
        place = (page.left, page.top + 8 + LINE * (index + 1) + 3)
        if picture.changes and index == len(others) - 1:
            result += legend(picture, place)
        else:
            result.append(text(line, place, palette.TEXT if index < summary else palette.FAINT_TEXT, "start"))
    return result


def legend(picture: Picture, place: Point) -> list[str]:
    """The kinds of change, each in its colour."""
    result, left = [], place[0]
    for change, words in zip(picture.changes, legend_words(picture), strict=True):
        result.append(text(words, (left, place[1]), palette.CHANGES[change][1], "start"))
        left += 0.6 * FONT_SIZE * (len(words) + 3)
    return result


def group_box(phase: str, rect: Rect) -> list[str]:
    place = (rect.left + 8, rect.top + 14)
    return [
        box(rect, palette.PHASE, palette.FAINT_LINE, radius=8),
        text(phase, place, palette.FAINT_TEXT, "start", bold=True, size=FONT_SIZE),
    ]


# --- boxes


def tensor_group(tensor: TensorBox, rect: Rect) -> list[str]:
    """A box for inputs and outputs, and the lines of the type in their colours."""
    shapes = []
    fill, line = tensor_colours(tensor)
    dashes = dashes_of(tensor.change, tensor.state != PLAIN)
    if tensor.kind != VALUE:
        shapes.append(box(rect, fill, line, radius=9, dashes=dashes, width=box_line(tensor.change)))
    if tensor.kind == OUTPUT:
        inner = Rect(rect.left + 2.5, rect.top + 2.5, rect.right - 2.5, rect.bottom - 2.5)
        shapes.append(box(inner, "none", line, radius=7, dashes=dashes))
    return grouped(f"{tensor.kind}-{tensor.name}", tensor.tip, [*shapes, *tensor_text(tensor, rect)])


def tensor_text(tensor: TensorBox, rect: Rect) -> list[str]:
    lines, units = tensor_lines(tensor), len(unit_lines(tensor))
    laws = len(law_lines(tensor) + remark_lines(tensor))
    first_unit, first_law = len(lines) - units - laws, len(lines) - laws
    result = []
    for index, (line, place) in enumerate(placed(lines, rect)):
        colour = palette.TEXT
        if index >= first_law or tensor.state == ABSENT:
            colour = palette.FAINT_TEXT
        elif index >= first_unit:
            colour = palette.UNIT
        elif tensor.change and tensor.kind == VALUE:
            colour = palette.CHANGES[tensor.change][1]
        result.append(text(line, place, colour, bold=index == 0 and tensor.kind != VALUE))
    return result


def stage_group(stage: StageBox, rect: Rect, fields: tuple[Rect, ...]) -> list[str]:
    """The box, the cells of its ports above and below, and the bar of its share of the time."""
    fill, line, dashes = stage_fill(stage), stage_line_colour(stage), dashes_of(stage.change, stage.skipped)
    shapes = [box(rect, fill, line, radius=2, dashes=dashes, width=box_line(stage.change))]
    count = len(stage.inputs)
    above, middle, below = fields[:count], fields[count], fields[count + 1 :]
    if above:
        shapes.append(rule(rect, middle.top))
    if stage.share is not None:
        shapes += bar(rect, middle.bottom, stage.share)
        middle = replace(middle, bottom=middle.bottom - BAR)
    if below:
        shapes.append(rule(rect, below[0].top))
    for (name, state), cell in zip([*stage.inputs.items(), *stage.outputs.items()], above + below, strict=True):
        colour = palette.FAINT_TEXT if state == ABSENT else palette.TEXT
        shapes += [text(label, place, colour) for label, place in placed([port_label(name, state)], cell)]
    for index, (label, place) in enumerate(placed(stage_lines(stage), middle)):
        colour = palette.FAINT_TEXT if stage.skipped else palette.TEXT
        shapes.append(text(label, place, colour, bold=index == 0))
    return grouped(f"{STAGE}-{stage.id}", stage.tip, shapes)


def bar(rect: Rect, bottom: float, share: float) -> list[str]:
    """The share as a length of the box's width: legible without colour."""
    width, top = rect.right - rect.left, bottom - BAR
    return [
        element("rect", x=rect.left, y=top, width=width, height=BAR, fill=palette.TRACK),
        element("rect", x=rect.left, y=top, width=width * min(share, 1), height=BAR, fill=palette.BAR),
    ]


def dashes_of(change: str, broken: bool) -> str | None:
    """The pattern of a line. broken: what is optional, absent or skipped; a change says more."""
    if change:
        return DOTS if change == REMOVED else None
    return DASHES if broken else None


def box_line(change: str) -> float | None:
    return THICK if change == ADDED else None


def rule(rect: Rect, y: float) -> str:
    line = f"M{number(rect.left)},{number(y)}H{number(rect.right)}"
    return element("path", d=line, stroke=palette.FAINT_LINE, fill="none")


def placed(lines: list[str], rect: Rect) -> Iterable[tuple[str, Point]]:
    """Every line with the middle of its base line, the block centred in the rect."""
    x, y = rect.centre
    first = y - LINE * len(lines) / 2 + 0.78 * LINE
    return ((line, (x, first + LINE * index)) for index, line in enumerate(lines))


# --- arrows


def arrow_group(index: int, arrow: Arrow, curve: Curve) -> list[str]:
    colour = palette.FAINT_LINE if arrow.state == ABSENT else palette.LINE
    colour = palette.CHANGES[arrow.change][1] if arrow.change else colour
    width = arrow_width(arrow)
    start, *rest = curve.points
    pieces = (" ".join(point(each) for each in rest[i : i + 3]) for i in range(0, len(rest), 3))
    path = f"M{point(start)}" + "".join(f"C{piece}" for piece in pieces)
    dashes = dashes_of(arrow.change, arrow.state != PLAIN)
    shapes = [element("path", d=path, fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dashes)]
    if curve.tip:
        shapes.append(element("path", d=arrowhead(curve.points[-1], curve.tip, width), fill=colour))
    return grouped(f"arrow-{index}", arrow.tip, shapes)


def arrowhead(base: Point, tip: Point, width: float) -> str:
    """A triangle from the end of the curve to the tip, wider than the line."""
    along = (tip[0] - base[0], tip[1] - base[1])
    length = math.hypot(*along) or 1.0
    half = max(2.6, width / 2 + 2)
    across = (-along[1] / length * half, along[0] / length * half)
    left, right = (base[0] + across[0], base[1] + across[1]), (base[0] - across[0], base[1] - across[1])
    return f"M{point(left)}L{point(tip)}L{point(right)}Z"


# --- SVG


def grouped(name: str, tip: str, shapes: list[str]) -> list[str]:
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return [f'<g id="{name}"><title>{escape(tip)}</title>', *shapes, "</g>"]


def box(
    rect: Rect, fill: str, stroke: str, radius: float, dashes: str | None = None, width: float | None = None
) -> str:
    """width: of the line, a point without it."""
    place = {"x": rect.left, "y": rect.top, "width": rect.right - rect.left, "height": rect.bottom - rect.top}
    return element("rect", **place, rx=radius, fill=fill, stroke=stroke, stroke_dasharray=dashes, stroke_width=width)


def text(content: str, place: Point, fill: str, anchor: str = "middle", bold: bool = False, size: float = 0) -> str:
    """A line of text. Bold is larger: the name of a box."""
    size = size or (NAME_SIZE if bold else FONT_SIZE)
    style = {"text_anchor": anchor, "font_size": size if size != FONT_SIZE else None}
    style["font_weight"] = "bold" if bold else None
    return element("text", escape(content), x=place[0], y=place[1], fill=fill, **style)


def element(name: str, content: str = "", **attributes: str | float | None) -> str:
    """An element; underscores of attribute names become hyphens, None leaves one out."""
    written = "".join(
        f' {key.replace("_", "-")}="{escape(value if isinstance(value, str) else number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def point(place: Point) -> str:
    return f"{number(place[0])},{number(place[1])}"


def number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
