"""A variant's tree laid over its base's: what is replaced, what goes, what is added.

Every part keeps the mark of where it was written. First the edges of the base are rewired (``replace.edges``), then
its entries change or go, then those of the variant are added: what the variant writes is taken as it stands.
"""

from collections.abc import Callable, Collection

from ..diagnostics.codes import EMPTY, IN_BASE_ALREADY, NOT_IN_BASE
from ..diagnostics.errors import Diagnostic, Note, quoted
from ..diagnostics.hints import nearest
from .check_keys import removed
from .rewire import read_inside, readers, rewired, still_read
from .spec_keys import PIPELINE
from .variant_keys import OWN
from .yaml_nodes import Entry, List, Map, Node, Scalar, entries

SECTIONS = tuple(name for name in PIPELINE.keys if name not in OWN)
NEVER_EMPTY = ("inputs", "stages", "outputs")
MOST_HINTS = 20
"""Errors that say what is there: comparing all names of a hostile file with all would take minutes."""


def merged(base: Map, variant: Map) -> tuple[Map, list[Diagnostic]]:
    """The variant as a pipeline of its own, and what is wrong with it."""
    merger = Merger(entries(base)["name"].value.text)
    root = merger.root(base, variant)
    changes = {name: entries(entry.value) for name, entry in entries(variant, "replace").items()}
    inputs, stages = (gone_from(changes.get(name, {})) for name in ("inputs", "stages"))
    left = [*still_read(root, inputs, stages), *read_inside(root, changes.get("edges", {}))]
    return root, merger.errors or left


def gone_from(changes: dict[str, Entry]) -> dict[str, Entry]:
    return {name: entry for name, entry in changes.items() if removed(entry.value)}


class Merger:
    """Collects what is wrong on the way. base: its name, for messages."""

    def __init__(self, base: str):
        self.base, self.errors = base, []

    def root(self, base: Map, variant: Map) -> Map:
        changes, result = entries(variant, "replace"), base
        if "edges" in changes:
            result = self.rewired(base, entries(changes["edges"].value))
        sections = {}
        for name in SECTIONS:
            section = self.replaced(result.entries.get(name), changes.get(name), f"replace.{name}")
            section = self.with_added(section, base.entries.get(name), variant.entries.get(name), name)
            if section and not empty(section.value):
                sections[name] = section
            elif section and name in NEVER_EMPTY:
                self.errors.append(Diagnostic(EMPTY, f"replace.{name} leaves no {name}", changes[name].key.mark))
        own = {name: entry for name, entry in variant.entries.items() if name in OWN}
        return Map(variant.mark, {**own, **sections})

    # --- replace

    def rewired(self, base: Map, changes: dict[str, Entry]) -> Map:
        sources = readers(base)
        for source, change in changes.items():
            if source not in sources:
                message = f"replace.edges: nothing in {self.base} reads {source}"
                self.not_there(message, source, change.key, sources, "its sources are")
        return rewired(base, changes)

    def replaced(self, old: Entry | None, change: Entry | None, path: str) -> Entry | None:
        """A section, or a part of the definition, with what replace says of it."""
        if change is None:
            return old
        if old is None:
            help = "what is new stands beside extends, not under replace"
            self.error(NOT_IN_BASE, f"{path}: {self.base} has none", change.key, help)
            return None
        if path == "replace.definition":
            return Entry(old.key, self.definition(old.value, change.value, path))
        if isinstance(old.value, List):
            return Entry(old.key, self.lines(old.value, change.value, path))
        entry = self.stage if path == "replace.stages" else whole
        return Entry(old.key, self.named(old.value, change.value, path, entry))

    def definition(self, old: Map, changes: Map, path: str) -> Map:
        names = dict.fromkeys((*old.entries, *changes.entries))
        parts = {
            name: self.replaced(old.entries.get(name), changes.entries.get(name), f"{path}.{name}") for name in names
        }
        return Map(old.mark, {name: part for name, part in parts.items() if part and not empty(part.value)})

    def named(self, old: Map, changes: Map, path: str, changed: Callable[[Entry, Entry], Entry]) -> Map:
        """Entries by name, each changed or gone."""
        result = dict(old.entries)
        for name, change in changes.entries.items():
            if name not in old.entries:
                self.not_there(f"{path}: {self.base} has no {name}", name, change.key, old.entries)
            elif removed(change.value):
                del result[name]
            else:
                result[name] = changed(old.entries[name], change)
        return Map(old.mark, result)

    def stage(self, old: Entry, change: Entry) -> Entry:
        """A stage with another use or recompute, and with some of its ports and parameters bound anew or not at all."""
        result, path = dict(old.value.entries), f"replace.stages.{old.key.text}"
        for key, part in entries(change.value).items():
            if key in ("in", "with"):
                before = result[key].value if key in result else Map(part.value.mark, {})
                result[key] = Entry(part.key, self.bound(before, part.value, f"{path}.{key}"))
            else:
                result[key] = part
        return Entry(old.key, Map(old.value.mark, result))

    def bound(self, old: Map, changes: Map, path: str) -> Map:
        result = {**old.entries, **changes.entries}
        for name, change in changes.entries.items():
            if removed(change.value):
                del result[name]
                if name not in old.entries:
                    self.not_there(f"{path}: {name} is not bound in {self.base}", name, change.key, old.entries)
        return Map(old.mark, result)

    def lines(self, old: List, changes: List | Map, path: str) -> List:
        """All lines anew, or some of them, each named by its text."""
        if isinstance(changes, List):
            return changes
        places: dict[str, list[int]] = {}
        for place, line in enumerate(old.items):
            places.setdefault(line.text, []).append(place)
        result = [[line] for line in old.items]
        for text, change in changes.entries.items():
            if text not in places:
                self.not_there(f"{path}: {self.base} has no line {quoted(text)}", text, change.key, places)
            elif len(places[text]) > 1:
                message = f"{path}: {self.base} has the line {quoted(text)} {len(places[text])} times"
                self.error(NOT_IN_BASE, message, change.key, "write all lines anew, as a list")
            else:
                result[places[text][0]] = new_lines(change.value)
        return List(old.mark, tuple(line for lines in result for line in lines))

    # --- add

    def with_added(self, section: Entry | None, old: Entry | None, new: Entry | None, path: str) -> Entry | None:
        """section: what replace left of old. new: what the variant writes beside extends."""
        if new is None or section is None:
            return section or new
        if isinstance(new.value, List):
            return Entry(section.key, List(section.value.mark, section.value.items + new.value.items))
        result = dict(section.value.entries)
        for name, entry in new.value.entries.items():
            before = old.value.entries.get(name)
            if path == "definition":
                result[name] = self.with_added(result.get(name), before, entry, f"{path}.{name}")
            elif before is None:
                result[name] = entry
            else:
                note = Note(f"{name} of {self.base}", before.key.mark)
                message = f"{path}: {self.base} has {name} already"
                help = f"to change it, write it under replace.{path}"
                self.errors.append(Diagnostic(IN_BASE_ALREADY, message, entry.key.mark, (note,), help))
        return Entry(section.key, Map(section.value.mark, result))

    # --- errors

    def not_there(self, message: str, name: str, key: Scalar, there: Collection[str], words: str = "it has") -> None:
        help = None
        if there and len(self.errors) < MOST_HINTS:
            close = nearest(name, there)
            help = f"did you mean {close}?" if close else f"{words} {'; '.join(there)}"
        self.error(NOT_IN_BASE, message, key, help)

    def error(self, code: str, message: str, key: Scalar, help: str | None) -> None:
        self.errors.append(Diagnostic(code, message, key.mark, help=help))


def whole(old: Entry, change: Entry) -> Entry:
    return change


def new_lines(change: Node) -> list[Node]:
    if isinstance(change, List):
        return list(change.items)
    return [] if removed(change) else [change]


def empty(node: Node) -> bool:
    return not (node.items if isinstance(node, List) else entries(node))
