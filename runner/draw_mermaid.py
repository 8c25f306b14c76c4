"""A picture as a Mermaid flowchart, which GitHub renders in Markdown.

The type of a produced value stands on every arrow that leaves its stage; an input's type in its own box. Mermaid's
own words (``end``), and ids that it would read as arrows (``x``, ``o``), are kept out by numbered ids.
"""

import re

from . import palette
from .draw_dot import pen_width, stage_fill, stage_lines, tensor_lines
from .picture import ABSENT, INPUT, OUTPUT, PLAIN, STAGE, VALUE, Arrow, Picture, StageBox, TensorBox

LETTERS = {INPUT: "i", VALUE: "v", OUTPUT: "o", STAGE: "s"}


def mermaid_text(picture: Picture) -> str:
    """The picture as a flowchart, the same bytes for the same picture."""
    ids = node_ids(picture)
    lines = ["---", f"title: {yaml_quoted(picture.name)}", "---", "flowchart TD"]
    lines += [f"%% {line}" for line in (picture.summary.replace("\n", " "), *picture.facts) if line.strip()]
    lines += [tensor_line(box, ids) for box in picture.tensors if box.kind != VALUE]
    for phase in picture.phases:
        inside = [stage_line(stage, ids) for stage in picture.stages if stage.phase == phase]
        inside += [tensor_line(box, ids) for box in picture.tensors if box.kind == VALUE and box.phase == phase]
        lines += inside if len(picture.phases) == 1 else [f"  subgraph {phase}", *inside, "  end"]
    for index, arrow in enumerate(picture.arrows):
        lines += [arrow_line(arrow, ids), f"  linkStyle {index} stroke-width:{pen_width(arrow.bytes):.2f}px"]
    return "\n".join([*lines, *styles(picture, ids)]) + "\n"


def node_ids(picture: Picture) -> dict[tuple[str, str], str]:
    """(kind, name) -> an id that Mermaid cannot misread: a letter, a number, what is plain of the name."""
    places = [(box.kind, box.name) for box in picture.tensors] + [(STAGE, stage.id) for stage in picture.stages]
    return {
        (kind, name): f"{LETTERS[kind]}{index}_{re.sub('[^A-Za-z0-9]', '_', name)}"
        for index, (kind, name) in enumerate(places)
    }


def tensor_line(box: TensorBox, ids) -> str:
    lines = [quoted(line) for line in tensor_lines(box)]
    if box.kind != VALUE:
        lines[0] = f"<b>{lines[0]}</b>"
    opened, closed = ('(["', '"])') if box.kind != VALUE else ('["', '"]')
    return f"    {ids[box.kind, box.name]}{opened}{'<br/>'.join(lines)}{closed}"


def stage_line(stage: StageBox, ids) -> str:
    name, *others = [quoted(line) for line in stage_lines(stage)]
    return f'    {ids[STAGE, stage.id]}["{"<br/>".join([f"<b>{name}</b>", *others])}"]'


def arrow_line(arrow: Arrow, ids) -> str:
    """Ports on the arrow: ``y`` on the way to a label, ``g`` on the way into a stage."""
    line = "---" if arrow.stem else "-->"
    if arrow.state != PLAIN:
        line = "-.->"
    port = arrow.tail[2] if arrow.stem else arrow.head[2]
    label = f'|"{quoted(port)}"|' if port else ""
    return f"    {ids[arrow.tail[:2]]} {line}{label} {ids[arrow.head[:2]]}"


def styles(picture: Picture, ids) -> list[str]:
    """Classes for boxes; a stage's ground by its share of the time, with its text dark on every page."""
    boxes = {
        "input": (palette.INPUT, palette.INPUT_LINE),
        "output": (palette.OUTPUT, palette.OUTPUT_LINE),
        "absent": (palette.PAGE, palette.FAINT_LINE),
    }
    lines = [f"    classDef {name} fill:{fill},stroke:{line},color:{palette.TEXT}" for name, (fill, line) in boxes.items()]
    lines.append("    classDef value fill:none,stroke:none")
    for box in picture.tensors:
        lines.append(f"    class {ids[box.kind, box.name]} {'absent' if box.state == ABSENT else box.kind}")
    for stage in picture.stages:
        line = palette.FAINT_LINE if stage.skipped else palette.LINE
        lines.append(f"    style {ids[STAGE, stage.id]} fill:{stage_fill(stage)},stroke:{line},color:{palette.TEXT}")
    return lines


def quoted(text: str) -> str:
    """A text inside a quoted label: what HTML, Markdown or Mermaid would read becomes an entity code of Mermaid."""
    return re.sub(r"[^A-Za-z0-9 _.,:/()=%+·-]", lambda found: f"#{ord(found[0])};", text)


def yaml_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
