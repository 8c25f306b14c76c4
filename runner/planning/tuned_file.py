"""tuned.yaml: the configurations that ``chunkwise tune`` found, by machine and by what a kernel is compiled for."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ...stages._contract import Config
from ..diagnostics.codes import SCHEMA_VERSION, WRONG_KIND
from ..diagnostics.errors import ChunkwiseError, Diagnostic
from ..loading.check_keys import check, first_character
from ..loading.decode_text import read_bytes
from ..loading.spec_keys import Key, Named, Rule, Table
from ..loading.yaml_nodes import Entry, Map, Node, Scalar, entries
from ..loading.yaml_text import parse_tree

VERSION = "tuned/v1"
TEXT = Rule("a text", pattern=".+")
NUMBER = Rule("a number", numbers=True, texts=False)
ENTRY = Table({
    "source": Key("hash of the code that was tuned", Rule("a hash", pattern="[0-9a-f]{12}"), required=True),
    "config": Key("the configuration", Named(NUMBER, filled=True), required=True),
    "ms": Key("milliseconds of it", NUMBER, required=True),
    "shipped_ms": Key("of the first one that ships, in the same race", NUMBER, required=True),
    "at": Key("sizes that it was timed at", TEXT, required=True),
})  # fmt: skip
FILE = Table({
    "schema": Key("the format", Rule("the format", choices={VERSION: ""}, code=SCHEMA_VERSION), required=True),
    "machines": Key("configurations by machine", Named(Named(ENTRY, key=TEXT), key=TEXT), required=True),
})  # fmt: skip
HEAD = "# Written by chunkwise tune. Calls and commands run these where CHUNKWISE_TUNED names this file.\n"


@dataclass(frozen=True)
class Tuned:
    """One configuration. source: stage_files.source_hash of what was tuned. ms, shipped_ms: of it and of the first one
    that ships, in one race. at: the sizes."""

    source: str
    config: Config
    ms: float
    shipped_ms: float
    at: str


Machines = Mapping[str, Mapping[str, Tuned]]
"""Machine -> what a kernel is compiled for -> its configuration: planning.tuned has the words of both."""


@lru_cache(maxsize=16)
def read_tuned(path: str) -> Machines:
    """Of a file, read once in a process. Raises ChunkwiseError with all that is wrong with it."""
    return parse_tuned(read_bytes(path), path)


def parse_tuned(text: bytes | str, file: str) -> dict[str, dict[str, Tuned]]:
    root, errors = parse_tree(text, file)
    errors += check(root, FILE, "", first_character(root))
    errors += [] if errors else [wrong for entry in configurations(root) for wrong in part_numbers(entry)]
    if errors:
        raise ChunkwiseError(*errors)
    machines = entries(root, "machines").items()
    return {name: {key: tuned(each.value) for key, each in entries(kept.value).items()} for name, kept in machines}


def configurations(root: Node) -> list[Entry]:
    return [each for kept in entries(root, "machines").values() for each in entries(kept.value).values()]


def part_numbers(entry: Entry) -> list[Diagnostic]:
    """What a configuration has that is no whole number."""
    wrong = [each for each in entries(entry.value, "config").values() if not isinstance(each.value.value, int)]
    words = "{} is {}, and a whole number belongs here"
    return [Diagnostic(WRONG_KIND, words.format(each.key.text, each.value.text), each.value.mark) for each in wrong]


def tuned(node: Map) -> Tuned:
    found = {name: each.value for name, each in entries(node).items()}
    config = {name: each.value.value for name, each in entries(node, "config").items()}
    return Tuned(found["source"].text, config, *(value(found[name]) for name in ("ms", "shipped_ms")), found["at"].text)


def value(node: Scalar) -> float:
    return float(node.value)


def tuned_text(machines: Machines) -> str:
    """The file, as parse_tuned reads it."""
    lines = [HEAD, f"schema: {VERSION}\n", "machines:\n" if machines else "machines: {}\n"]
    for machine, kept in sorted(machines.items()):
        lines.append(f"  {quoted_key(machine)}:\n")
        for key, each in sorted(kept.items()):
            config = ", ".join(f"{name}: {number}" for name, number in each.config.items())
            lines += [
                f"    {quoted_key(key)}:\n",
                f"      config: {{{config}}}\n",
                f"      ms: {each.ms:.6g}\n",
                f"      shipped_ms: {each.shipped_ms:.6g}\n",
                f"      at: {quoted_key(each.at)}\n",
                f"      source: {quoted_key(each.source)}\n",
            ]
    return "".join(lines)


def quoted_key(text: str) -> str:
    """A text that YAML takes for no number."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
