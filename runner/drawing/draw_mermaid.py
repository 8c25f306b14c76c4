"""A picture as a Mermaid flowchart, which GitHub renders in Markdown.

As in the other pictures, the type of a produced value stands where the arrows to its readers part. Mermaid's
own words (``end``), and ids that it would read as arrows (``x``, ``o``), are kept out by numbered ids.
"""

import json
import re
from collections.abc import Mapping

from . import palette
from .draw_dot import TITLE_WIDTH, arrow_width, legend_words, stage_lines, tensor_lines
from .picture import ABSENT, INPUT, OUTPUT, PLAIN, REMOVED, STAGE, VALUE, Arrow, Picture, StageBox, TensorBox
from .picture_text import wrap

LETTERS = {INPUT: "i", VALUE: "v", OUTPUT: "o", STAGE: "s"}
Ids = Mapping[tuple[str, str], str]


def mermaid_text(picture: Picture) -> str:
    """The picture as a flowchart, the same bytes for the same picture."""
    ids = node_ids(picture)
    lines = ["---", f"title: {json.dumps(picture.name)}", "---", "flowchart TD"]
    remarks = (*wrap(picture.summary, TITLE_WIDTH), *picture.facts, *legend_words(picture))
    lines += [f"  %% {quoted(line)}" for line in remarks]
    lines += [tensor_line(box, ids) for box in picture.tensors if box.kind != VALUE]
    for phase in picture.phases:
        inside = [stage_line(stage, ids) for stage in picture.stages if stage.phase == phase]
        inside += [tensor_line(box, ids) for box in picture.tensors if box.kind == VALUE and box.phase == phase]
        lines += inside if len(picture.phases) == 1 else [f"  subgraph {phase}", *inside, "  end"]
    lines += [arrow_line(arrow, ids) for arrow in picture.arrows]
    return "\n".join([*lines, *widths(picture), *classes(picture)]) + "\n"


def node_ids(picture: Picture) -> dict[tuple[str, str], str]:
    """(kind, name) -> an id that Mermaid cannot misread: a letter, a number, what is plain of the name."""
    places = [(box.kind, box.name) for box in picture.tensors] + [(STAGE, stage.id) for stage in picture.stages]
    return {
        (kind, name): f"{LETTERS[kind]}{index}_{re.sub('[^A-Za-z0-9]', '_', name)}"
        for index, (kind, name) in enumerate(places)
    }


def tensor_line(box: TensorBox, ids: Ids) -> str:
    opened, closed = ("[", "]") if box.kind == VALUE else ("([", "])")
    named = box.kind != VALUE or box.change
    lines = tensor_lines(box) if named else [box.name, *tensor_lines(box)]
    group = tensor_class(box)
    return f"  {ids[box.kind, box.name]}{opened}{label(lines)}{closed}:::{group}"


def tensor_class(box: TensorBox) -> str:
    return box.change or ("absent" if box.state == ABSENT else box.kind)


def stage_line(stage: StageBox, ids: Ids) -> str:
    return f"  {ids[STAGE, stage.id]}[{label(stage_lines(stage))}]:::{stage_class(stage)}"


def label(lines: list[str]) -> str:
    name, *others = [quoted(line) for line in lines]
    return '"' + "<br/>".join([f"<b>{name}</b>", *others]) + '"'


def arrow_line(arrow: Arrow, ids: Ids) -> str:
    """The port that it enters stands on an arrow where it has another name than what comes in."""
    line = "-.->" if arrow.state != PLAIN else "---" if arrow.stem else "-->"
    port = arrow.head[2]
    shown = port and port != arrow.tail[1].rpartition(".")[2]
    return f"  {ids[arrow.tail[:2]]} {line}{f'|{quoted(port)}|' if shown else ''} {ids[arrow.head[:2]]}"


def widths(picture: Picture) -> list[str]:
    """One line for each width and colour, with the numbers of its arrows."""
    numbers: dict[str, list[str]] = {}
    for number, arrow in enumerate(picture.arrows):
        numbers.setdefault(link_style(arrow), []).append(str(number))
    return [f"  linkStyle {','.join(each)} {style}" for style, each in numbers.items()]


def link_style(arrow: Arrow) -> str:
    style = f"stroke-width:{arrow_width(arrow):.2f}px"
    style += f",stroke:{palette.CHANGES[arrow.change][1]}" if arrow.change else ""
    return style + (",stroke-dasharray:2 3" if arrow.change == REMOVED else "")


def stage_class(stage: StageBox) -> str:
    """``stage``, what changed about it, or by its share of the time ``heat0`` to ``heat4``."""
    if stage.change:
        return stage.change
    if stage.skipped:
        return "absent"
    return "stage" if stage.share is None else f"heat{palette.HEAT.index(palette.heat(stage.share))}"


def classes(picture: Picture) -> list[str]:
    """The colours in use. Text is dark on the light grounds, whatever the page; a bare label follows the page."""
    grounds = {
        INPUT: (palette.INPUT, palette.INPUT_LINE),
        OUTPUT: (palette.OUTPUT, palette.OUTPUT_LINE),
        STAGE: (palette.STAGE, palette.LINE),
        "absent": (palette.PAGE, palette.FAINT_LINE),
    } | {f"heat{step}": (ground, palette.LINE) for step, ground in enumerate(palette.HEAT)}
    grounds |= palette.CHANGES
    used = {tensor_class(box) for box in picture.tensors}
    used |= {stage_class(stage) for stage in picture.stages}
    lines = [
        f"  classDef {name} fill:{ground},stroke:{line},color:{palette.TEXT}"
        for name, (ground, line) in grounds.items()
        if name in used
    ]
    return [*lines, f"  classDef {VALUE} fill:none,stroke:none"]


def quoted(text: str) -> str:
    """A text inside a quoted label: what HTML, Markdown or Mermaid would read becomes an entity code of Mermaid."""
    return re.sub(r"[^A-Za-z0-9 _.,:/()=%+·-]", lambda found: f"#{ord(found[0])};", text)
