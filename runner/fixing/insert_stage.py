"""Where a new stage entry goes, and how it is written there: before the entry that needs it, in that one's style."""

import re

from ..diagnostics.errors import Convert
from ..loading.spec_text import scalar
from ..loading.yaml_nodes import Entry, Map
from .text_edits import Edit, Places

FLOW = re.compile(r"(?:&\S+\s+)?\{")
"""How a mapping in flow style begins, after an anchor perhaps."""


def entry_edit(places: Places, stages: Map, before: Entry, id: str, wanted: Convert) -> Edit | None:
    """The edit that puts the entry in front of another one; None where that one's key does not begin its line as
    entries do."""
    start, _ = places.span(before.key.mark)
    start -= places.text[start - 1 : start] in ("'", '"')
    line_start = places.starts[before.key.mark.line - 1]
    lead = places.text[line_start:start]
    in_braces = f"{id}: {{use: {wanted.use}, in: {{{wanted.takes}: {scalar(wanted.source, flow=True)}}}}}"
    if is_flow(places, stages):
        after = ", " if lead.strip() else f",{places.line_end}{lead}"
        return Edit(start, start, in_braces + after)
    if lead.strip():
        return None
    rows = [in_braces]
    if isinstance(before.value, Map) and not is_flow(places, before.value):
        rows = block_rows(before.value, lead, id, wanted)
    at = places.starts[first_comment(places, before.key.mark.line, lead) - 1]
    return Edit(at, at, "".join(f"{lead}{row}{places.line_end}" for row in rows))


def is_flow(places: Places, node: Map) -> bool:
    return FLOW.match(places.text, places.span(node.mark)[0]) is not None


def block_rows(beside: Map, lead: str, id: str, wanted: Convert) -> list[str]:
    """The entry over lines, indented as the keys beside it are."""
    first = next(iter(beside.entries.values())).key.mark
    step = " " * max(first.column - 1 - len(lead), 1)
    source = scalar(wanted.source, flow=False)
    return [f"{id}:", f"{step}use: {wanted.use}", f"{step}in:", f"{step}{step}{wanted.takes}: {source}"]


def first_comment(places: Places, line: int, lead: str) -> int:
    """The line where an entry begins, comments that stand right above it and in its column included."""
    while line > 1 and places.line(line - 1).startswith(f"{lead}#"):
        line -= 1
    return line
