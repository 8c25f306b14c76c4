"""The pages of ``explain``: what a pipeline file may hold, from the tables that the loader and the schema go by."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import fill

from ...stages import _laws
from ...stages._units import UNITS
from ..definition import functions as of_definitions
from ..definition.types import HEADS, LANES
from ..expression import number, parse
from ..loading.spec_keys import DEFINITION, DTYPE, PIPELINE, Flag, Key, Kind, Lines, Many, Named, Removable, Rule, Table
from ..loading.variant_keys import VARIANT
from ._bench_page import bench_page
from ._tables import table
from ._tuned_page import tuned_page

WIDTH = 110


@dataclass(frozen=True)
class Row:
    """One key. path: as ``inputs.NAME.dtype``. value: what belongs there. doc: what it means."""

    path: str
    value: str
    required: bool
    doc: str


def rows_of(keys: Mapping[str, Key], before: str = "") -> Iterator[Row]:
    """Every key of a table, each table inside it after the key that holds it."""
    for name, key in keys.items():
        path = f"{before}{name}"
        yield Row(path, words(key.kind), key.required, key.doc)
        inside, kind = (f"{path}.NAME.", key.kind.item) if isinstance(key.kind, Named) else (f"{path}.", key.kind)
        kind = kind.item if isinstance(kind, Removable) else kind
        if isinstance(kind, Table):
            yield from rows_of(kind.keys, inside)


def words(kind: Kind) -> str:
    """What may stand at a key."""
    match kind:
        case Rule():
            return " | ".join(kind.choices) if kind.choices and len(kind.choices) <= 3 else kind.words
        case Flag():
            return "true or false"
        case Many(item, single):
            return f"{item.words}, or a list of them" if single else f"a list; each {item.words}"
        case Named(item):
            return f"NAME: {words(item)}"
        case Removable(item):
            return f"{words(item)}, or null"
        case Lines(item):
            return f"a list; each {item.words}; or OLD LINE: a line, a list of lines or null"
        case Table(keys, short):
            return f"{words(keys[short].kind)}, or a mapping" if short else "a mapping"


def key_table(rows: list[Row]):
    cells = ((row.path, "required" if row.required else "", row.value, row.doc) for row in rows)
    return table("", dict.fromkeys(("key", "", "what stands there", "what it is"), "left"), cells)


def documents(rows: list[Row]) -> list[dict]:
    return [{"key": row.path, "value": row.value, "required": row.required, "doc": row.doc} for row in rows]


def section(title: str, lines: Mapping[str, str]):
    return table(f"\n{title}", {"": "left", " ": "left"}, lines.items())


def paragraph(text: str) -> str:
    return "\n" + fill(text, WIDTH)


def indented(text: str) -> str:
    return fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def pipeline_page() -> tuple[dict, list]:
    """(the JSON, the text) on pipeline files."""
    rows = list(rows_of(PIPELINE.keys))
    more = list(rows_of({name: VARIANT.keys[name] for name in ("extends", "replace")}))
    known = ", ".join(number.FUNCTIONS)
    text = [
        "A pipeline file, key by key. `chunkwise explain definition` has the lines of a definition.",
        "",
        key_table(rows),
        paragraph(
            "A file that extends another has a name, and of the rest what is its own. What stands beside extends is "
            "added: entries by their name, lines of the definition at the end. What stands under replace is other than "
            "in the base; a line goes in between by OLD LINE: [OLD LINE, the new one]. edges speak of the readers in "
            "the base, not of stages that the file adds."
        ),
        key_table(more),
        paragraph(
            "Expressions of params, with and constraints are over numbers: axes, and the params before. Functions: "
            f"{known}. A call may give a param a number of its own, as in op(..., scale=1.0)."
        ),
        section("dtypes", DTYPE.choices),
        section("units", UNITS),
        paragraph(f"Value laws, in quotes where they stand inside {{ }}: {', '.join(_laws.FORMS)}."),
    ]
    units = {"units": UNITS, "dtypes": DTYPE.choices, "laws": list(_laws.FORMS)}
    return {"keys": documents([*rows, *more]), "functions": list(number.FUNCTIONS), **units}, text


def definition_page() -> tuple[dict, list]:
    """(the JSON, the text) on the definition of a pipeline."""
    rows, calls = list(rows_of(DEFINITION.keys)), calls_by_rule()
    operators = [*(" ".join(level) for level in reversed(parse.LEVELS)), " ".join(parse.COMPARISONS)]
    lanes, heads = ", ".join(LANES), ", ".join(HEADS)
    text = [
        f"A definition: {PIPELINE.keys['definition'].doc}. Exactly one of {' and '.join(DEFINITION.one_of)} is there.",
        "",
        key_table(rows),
        paragraph(
            f"A line of step sees one token of one sequence and one value head: of an input's axes, {lanes} and the "
            f"heads {heads} are gone, so that q [B T H K] is a vector over K; a value head reads the key head of its "
            "group. Names are inputs, params, axes (their sizes), states and the lines before; a name that is no "
            "state lasts for one token. A line that ends with `if NAME` is there only when that optional input is. A "
            "state that starts from an absent input starts from 0."
        ),
        paragraph(
            "A line of dense sees whole tensors of one sequence and one query head: q [B Sq HQ D] is over (Sq, D), and "
            "a query head reads the key head of its group. Values join by the names of their axes, over all that any "
            f"of them has: index(Sk) <= index(Sq) is over (Sk, Sq). {', '.join(of_definitions.DENSE)} are there alone, "
            "and outer and diag are not."
        ),
        paragraph(
            f"Operators, those that bind first at the left: ** then unary - then {' then '.join(operators)}. @ "
            "contracts the last axis of its left side with the first of its right; the others join equal axes or "
            "scalars."
        ),
        *(f"\n{of_definitions.RULES[rule]}:\n{indented(', '.join(found))}" for rule, found in calls.items()),
    ]
    listed = [{"call": call, "rule": of_definitions.RULES[rule]} for rule, found in calls.items() for call in found]
    return {"keys": documents(rows), "operators": operators, "functions": listed}, text


def calls_by_rule() -> dict[str, list[str]]:
    """Rule -> the functions that follow it, as calls."""
    found: dict[str, list[str]] = {}
    for name, function in (of_definitions.FUNCTIONS | of_definitions.DENSE).items():
        found.setdefault(function.rule, []).append(f"{name}({', '.join(function.arguments)})")
    return found


PAGES = {"pipeline": pipeline_page, "definition": definition_page, "bench": bench_page, "tuned": tuned_page}
