"""A picture as Graphviz DOT, both a file to keep and what the SVG is laid out from.

The text is written here and not with the PyPI package ``graphviz``: that package only quotes and joins strings, and
it is missing on machines where the ``.dot`` must still be written; two writers would make two pictures.

Labels are plain and records, never HTML: the WebAssembly build of Graphviz that comes with chunkwise has no HTML
labels. Stages are records with a field for every port, inputs rounded boxes, outputs rounded boxes with a double
line; the type of a produced value stands on its stem, where the arrows to its readers part.
"""

import math
import re
from collections.abc import Mapping

from . import palette
from .picture import (
    ABSENT,
    ADDED,
    INPUT,
    OPTIONAL,
    OUTPUT,
    PLAIN,
    REMOVED,
    SIGNS,
    STAGE,
    VALUE,
    Arrow,
    Picture,
    StageBox,
    Tensor,
    TensorBox,
)
from .picture_text import bytes_text, wrap

FONT = "Courier"
"""Measured as 0.6 em a character, like nearly every monospaced font that a viewer may have instead."""
FONT_SIZE = 10
NAME_SIZE = 12
"""Points of a box's name in bold, which the SVG paints larger than Graphviz measures it."""
MANY_STAGES = 40
"""Beyond these the layout is improved for fewer rounds: 1.4 s instead of 8 s for 60 stages in a dense graph."""
TITLE_WIDTH, TYPE_WIDTH, STAGE_WIDTH = 76, 32, 30
"""Characters in a line of the title, of a unit or law, of a stage's name."""


def dot_text(picture: Picture) -> str:
    """The picture in DOT, the same bytes for the same picture."""
    lines = [
        f"digraph {quoted(picture.name)} {{",
        statement("graph", graph_style(picture)),
        statement("node", {"fontname": FONT, "fontsize": str(FONT_SIZE), "fontcolor": palette.TEXT}),
        statement("edge", {"color": palette.LINE, "arrowsize": "0.6"}),
    ]
    lines += [tensor_node(box) for box in picture.tensors if box.kind != VALUE]
    for phase in picture.phases:
        boxes = [stage_node(stage) for stage in picture.stages if stage.phase == phase]
        boxes += [tensor_node(box) for box in picture.tensors if box.kind == VALUE and box.phase == phase]
        lines += boxes if len(picture.phases) == 1 else cluster(phase, boxes)
    lines += [edge(number, arrow) for number, arrow in enumerate(picture.arrows)]
    return "\n".join([*lines, "}"]) + "\n"


def graph_style(picture: Picture) -> dict[str, str]:
    rounds = {} if len(picture.stages) <= MANY_STAGES else {"nslimit": "2", "nslimit1": "2", "mclimit": "0.5"}
    return rounds | {
        "rankdir": "TB",
        "ranksep": "0.42",
        "nodesep": "0.3",
        "fontname": FONT,
        "fontsize": str(FONT_SIZE),
        "fontcolor": palette.TEXT,
        "bgcolor": palette.PAGE,
        "pad": "0.2",
        "labelloc": "t",
        "labeljust": "l",
        "label": Raw("".join(literal(line) + "\\l" for line in [*title_lines(picture), ""])),
    }


def title_lines(picture: Picture) -> list[str]:
    """Name, summary and facts, wrapped; last the legend, where there is one."""
    facts = [line for fact in picture.facts for line in wrap(fact, TITLE_WIDTH)]
    legend = ["   ".join(legend_words(picture))] if picture.changes else []
    return [picture.name, *wrap(picture.summary, TITLE_WIDTH), *facts, *legend]


def legend_words(picture: Picture) -> list[str]:
    """One text for each kind of change. Lines tell them apart without colour."""
    lines = {ADDED: " (thick)", REMOVED: " (dotted)"}
    return [f"{SIGNS[change]}{change}{lines.get(change, '')}" for change in picture.changes]


def cluster(phase: str, boxes: list[str]) -> list[str]:
    style = {
        "label": phase,
        "labeljust": "l",
        "fontcolor": palette.FAINT_TEXT,
        "style": "rounded",
        "color": palette.FAINT_LINE,
        "bgcolor": palette.PHASE,
        "margin": "12",
    }
    return [f"subgraph {quoted('cluster_' + phase)} {{", statement("graph", style), *boxes, "}"]


# --- boxes


def tensor_node(box: TensorBox) -> str:
    label = Raw("\\n".join(literal(line) for line in tensor_lines(box)))
    style = {"label": label, "tooltip": box.tip, "height": "0"}
    if box.kind == VALUE:
        style |= {"shape": "none", "width": "0", "margin": "0.05,0.03"}
        style |= {"fontcolor": tensor_colours(box)[1]} if box.change else {}
    else:
        fill, line = tensor_colours(box)
        style |= {"shape": "box", "width": inches(SIGNS[box.change] + box.name), "margin": "0.1,0.08"}
        style |= {"fillcolor": fill, "color": line}
        style["style"] = "rounded,filled" + line_style(box)
    if box.kind == OUTPUT:
        style["peripheries"] = "2"
    if box.state == ABSENT:
        style["fontcolor"] = palette.FAINT_TEXT
    return statement(quoted(node_name(box.kind, box.name)), style)


def line_style(box: TensorBox | StageBox) -> str:
    """What follows the other styles of a box: its line."""
    if box.change:
        return {ADDED: ",bold", REMOVED: ",dotted"}.get(box.change, "")
    broken = box.skipped if isinstance(box, StageBox) else box.state != PLAIN
    return ",dashed" if broken else ""


def tensor_colours(box: TensorBox) -> tuple[str, str]:
    """Ground and line."""
    if box.change:
        return palette.CHANGES[box.change]
    if box.state == ABSENT:
        return palette.PAGE, palette.FAINT_LINE
    if box.kind == INPUT:
        return palette.INPUT, palette.INPUT_LINE
    return palette.OUTPUT, palette.OUTPUT_LINE


def tensor_lines(box: TensorBox) -> list[str]:
    """The name (a stem has its port's), shape and dtype, the numbers, the unit, an input's laws."""
    sign = SIGNS[box.change]
    lines = [sign + box.name] if box.kind != VALUE or box.change else []
    if box.state == ABSENT:
        lines.append("absent")
    if box.tensor:
        lines.append(f"{box.tensor.shape} {box.tensor.dtype}")
        lines += number_lines(box.tensor)
        lines += unit_lines(box) + law_lines(box) + remark_lines(box)
    return lines


def number_lines(tensor: Tensor) -> list[str]:
    """The shape in numbers, and what it takes in memory, which an IO dtype without a name leaves open."""
    known = tensor.bytes is not None and tensor.dtype not in ("io", "f32")
    return [line for line in (tensor.dims, bytes_text(tensor.bytes) if known else None) if line]


def unit_lines(box: TensorBox) -> list[str]:
    return wrap(box.tensor.unit or "", TYPE_WIDTH) if box.tensor else []


def law_lines(box: TensorBox) -> list[str]:
    return wrap(box.tensor.laws, TYPE_WIDTH) if box.kind == INPUT and box.tensor else []


def remark_lines(box: TensorBox | StageBox) -> list[str]:
    return [line for remark in box.remarks for line in wrap(remark, TYPE_WIDTH)]


def stage_node(stage: StageBox) -> str:
    fields = [record_row(stage.inputs, "in"), "\\n".join(record_literal(line) for line in stage_lines(stage))]
    label = "|".join(field for field in [*fields, record_row(stage.outputs, "out")] if field)
    style = {
        "label": Raw(f"{{{label}}}"),
        "tooltip": stage.tip,
        "shape": "record",
        "style": "filled" + line_style(stage),
        "fillcolor": stage_fill(stage),
        "color": stage_line_colour(stage),
        "width": inches((SIGNS[stage.change] + stage.id).ljust(11)),
    }
    if stage.skipped:
        style["fontcolor"] = palette.FAINT_TEXT
    return statement(quoted(node_name(STAGE, stage.id)), style)


def stage_line_colour(stage: StageBox) -> str:
    if stage.change:
        return palette.CHANGES[stage.change][1]
    return palette.FAINT_LINE if stage.skipped else palette.LINE


def stage_fill(stage: StageBox) -> str:
    if stage.change:
        return palette.CHANGES[stage.change][0]
    if stage.skipped:
        return palette.PAGE
    return palette.STAGE if stage.share is None else palette.heat(stage.share)


def stage_lines(stage: StageBox) -> list[str]:
    """The id, the stage's name, what ran it for how long."""
    lines = [SIGNS[stage.change] + stage.id, *wrap(stage.stage, STAGE_WIDTH), *remark_lines(stage)]
    if stage.skipped:
        return [*lines, "skipped"]
    return [*lines, *([stage.measured] if stage.measured else [])]


def record_row(ports: Mapping[str, str], side: str) -> str:
    """A field for every port, in brackets when nothing passes it."""
    fields = [f"<{side}_{name}> {record_literal(port_label(name, state))}" for name, state in ports.items()]
    return f"{{{'|'.join(fields)}}}" if fields else ""


def port_label(name: str, state: str) -> str:
    return f"({name})" if state == ABSENT else name


def inches(name: str) -> str:
    """A width in which the bold name fits."""
    return f"{(0.6 * NAME_SIZE * len(name) + 16) / 72:.2f}"


# --- arrows


def edge(number: int, arrow: Arrow) -> str:
    style = {"id": f"arrow-{number}", "penwidth": f"{arrow_width(arrow):.2f}", "tooltip": arrow.tip}
    if arrow.stem:
        style |= {"arrowhead": "none", "weight": "4"}
    if arrow.state == OPTIONAL:
        style["style"] = "dashed"
    if arrow.state == ABSENT:
        style |= {"style": "dashed", "color": palette.FAINT_LINE}
    if arrow.change:
        style |= {"color": palette.CHANGES[arrow.change][1], "style": "dotted" if arrow.change == REMOVED else "solid"}
    tail_kind, tail_name, tail_port = arrow.tail
    tail = quoted(node_name(tail_kind, tail_name)) + (f":{quoted(f'out_{tail_port}')}:s" if tail_port else "")
    head_kind, head_name, head_port = arrow.head
    head = quoted(node_name(head_kind, head_name)) + (f":{quoted(f'in_{head_port}')}" if head_port else "")
    return statement(f"{tail} -> {head}:n", style)


def arrow_width(arrow: Arrow) -> float:
    return pen_width(arrow.bytes) + (1.2 if arrow.change == ADDED else 0)


def pen_width(count: int | None) -> float:
    """0.8 points for a kilobyte and less, one more for every factor of 128, at most 3.6; 1.2 when it is not known."""
    if count is None:
        return 1.2
    return min(3.6, max(0.8, 0.8 + (math.log2(max(count, 1)) - 10) / 7))


# --- DOT


class Raw(str):
    """An attribute with Graphviz's escapes in place, its texts literal already."""


def literal(text: str) -> str:
    """A text inside a label: entities and escapes of Graphviz taken as characters."""
    return text.replace("&", "&amp;").replace("\\", "\\\\")


def record_literal(text: str) -> str:
    """The same inside a record's label, which reads these characters as its own."""
    return re.sub(r"[{}|<> ]", r"\\\g<0>", literal(text))


def quoted(text: str) -> str:
    """A DOT string. Line ends become \\n; a Raw text keeps its escapes."""
    if not isinstance(text, Raw):
        text = literal(text).replace("\n", "\\n")
    return '"' + text.replace('"', '\\"') + '"'


def statement(subject: str, attributes: Mapping[str, str]) -> str:
    return f"  {subject} [{' '.join(f'{key}={quoted(value)}' for key, value in attributes.items())}]"


def node_name(kind: str, name: str) -> str:
    return f"{kind} {name}"
