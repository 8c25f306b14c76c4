"""Text to a tree of nodes with exact places: YAML 1.2 core, without what makes untrusted files unsafe.

PyYAML gives the events, and nothing of its types or constructors is used. Scalars follow the core schema
(yaml_scalars.py): ``1e-3`` is a float, ``on`` and ``12:30:45`` are strings, ``017`` is 17 and ``0o17`` is 15.
Anchors and aliases work; an aliased node keeps the place where it was written. Refused, each at its place:
duplicate keys, tags, merge keys, keys that are no scalar, entries of ``{ }`` without a colon, a second document,
control characters, and what lies beyond the limits. Lines and columns start at 1; columns count characters.
"""

import re
from collections.abc import Iterable

import yaml

from ..diagnostics.codes import DUPLICATE_KEY, EMPTY, ENCODING, LIMIT, WRONG_KIND, YAML_FEATURE, YAML_SYNTAX
from ..diagnostics.errors import ChunkwiseError, Diagnostic, Note, quoted
from ..diagnostics.marks import Mark
from .decode_text import UNPRINTABLE, decode
from .yaml_nodes import Entry, List, Map, Node, Scalar, is_cut, together
from .yaml_scalars import resolve

MAX_ERRORS = 100
MAX_DEPTH = 32
MAX_NODES = 10_000
"""Nodes of a file, an alias counted as everything that it stands for."""


def parse_tree(data: bytes | str, file: str) -> tuple[Node, list[Diagnostic]]:
    """The tree of a text and the errors that leave a tree to go on with. Raises ChunkwiseError where none is left."""
    text = decode(data, file)
    events = Events(text)
    composer = Composer(events, text, file)
    try:
        return composer.document(), composer.errors
    except yaml.MarkedYAMLError as error:
        raise ChunkwiseError(*composer.errors, composer.syntax_error(error)) from None
    except (ValueError, OverflowError):  # an escape or a directive with a number that is none
        mark = composer.mark(events.get_mark())
        message = "an escape or directive here holds a number out of range"
        raise ChunkwiseError(*composer.errors, Diagnostic(YAML_SYNTAX, message, mark)) from None


class Events(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's event parser over a text."""

    def __init__(self, text: str):
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


class Composer:
    """Events to nodes. Keeps, per node, how many nodes it holds and how deep it is, aliases expanded."""

    def __init__(self, events: Events, text: str, file: str):
        self.events, self.text, self.file = events, text, file
        self.errors: list[Diagnostic] = []
        self.anchors: dict[str, Node | None] = {}
        self.extent: dict[Node, tuple[int, int]] = {}
        self.seen = 0

    def mark(self, start: yaml.Mark, end: yaml.Mark | None = None) -> Mark:
        end = end or start
        return Mark(self.file, start.line + 1, start.column + 1, end.line + 1, end.column + 1, self.text)

    def error(self, code: str, message: str, mark: Mark, help: str | None = None, notes: tuple[Note, ...] = ()):
        self.errors.append(Diagnostic(code, message, mark, notes, help))
        if len(self.errors) == MAX_ERRORS:
            raise ChunkwiseError(*self.errors, Diagnostic(LIMIT, "too many errors: the rest was not read"))

    def stop(self, code: str, message: str, mark: Mark, help: str | None = None):
        raise ChunkwiseError(*self.errors, Diagnostic(code, message, mark, help=help))

    def document(self) -> Node:
        self.events.get_event()
        if self.events.check_event(yaml.StreamEndEvent):
            self.stop(EMPTY, "the file holds nothing", Mark(self.file, 1, 1, 1, 1, self.text))
        self.events.get_event()
        root = self.node(depth=1, flow=False)
        self.events.get_event()
        if not self.events.check_event(yaml.StreamEndEvent):
            mark = self.mark(self.events.peek_event().start_mark)
            self.stop(YAML_SYNTAX, "a second document starts here", mark, "a pipeline file holds one document")
        return root

    def node(self, depth: int, flow: bool) -> Node:
        event = self.events.get_event()
        mark = self.mark(event.start_mark, event.end_mark)
        self.seen += 1
        self.within_limits(self.seen, depth, mark)
        if isinstance(event, yaml.AliasEvent):
            return self.aliased(event.anchor, depth, mark)
        if event.tag is not None:
            help = "tags are not read; quotes make any value a text"
            self.error(YAML_FEATURE, f"tag {quoted(event.tag)}", mark, help)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node, inner = self.scalar(event), ()
        elif isinstance(event, yaml.MappingStartEvent):
            node = self.mapping(event, depth)
            inner = [part for each in node.entries.values() for part in (each.key, each.value)]
        else:
            node = self.sequence(event, depth)
            inner = node.items
        self.measure(node, inner)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def measure(self, node: Node, inner: Iterable[Node]):
        sizes = [self.extent.get(each, (1, 1)) for each in inner]
        count, height = 1 + sum(size for size, _ in sizes), 1 + max((tall for _, tall in sizes), default=0)
        self.extent[node] = count, height
        self.within_limits(count, 1, node.mark)

    def within_limits(self, count: int, depth: int, mark: Mark):
        if count > MAX_NODES:
            self.stop(LIMIT, f"more than {MAX_NODES:,} values, with aliases written out", mark)
        if depth > MAX_DEPTH:
            self.stop(LIMIT, f"nested more than {MAX_DEPTH} deep", mark)

    def aliased(self, name: str, depth: int, mark: Mark) -> Node:
        if name not in self.anchors:
            self.stop(YAML_SYNTAX, f"alias {quoted(name)} without an anchor", mark, "&name stands before *name")
        node = self.anchors[name]
        if node is None:
            self.stop(YAML_SYNTAX, f"alias {quoted(name)} stands inside its own anchor", mark)
        self.within_limits(0, depth + self.extent[node][1] - 1, mark)
        return node

    def scalar(self, event: yaml.ScalarEvent) -> Scalar:
        text, plain = event.value, event.style is None
        mark = self.mark(event.start_mark, event.end_mark)
        end = event.end_mark.index - (not plain)
        start = end - len(text)
        verbatim = "\n" not in text and self.text[start:end] == text and event.style in (None, "'", '"')
        if verbatim:
            column = event.end_mark.column - (not plain) + 1
            mark = Mark(self.file, mark.end_line, column - len(text), mark.end_line, column, self.text)
        if found := UNPRINTABLE.search(text):
            self.error(ENCODING, f"the escape for U+{ord(found[0]):04X} may not stand in a pipeline file", mark)
            text = UNPRINTABLE.sub("", text)
        try:
            return Scalar(mark, resolve(text) if plain else text, text, verbatim)
        except OverflowError as error:
            self.error(LIMIT, str(error), mark)
            return Scalar(mark, 1, text, verbatim)

    def sequence(self, event: yaml.SequenceStartEvent, depth: int) -> List:
        items = []
        while not self.events.check_event(yaml.SequenceEndEvent):
            items.append(self.node(depth + 1, event.flow_style))
        end = self.events.get_event()
        mark = self.mark(event.start_mark, end.end_mark)
        return List(mark, tuple(self.whole_items(items) if event.flow_style else items))

    def whole_items(self, items: list[Node]) -> list[Node]:
        """items with those put together again that a comma inside parentheses has cut."""
        whole: list[Node] = []
        for item in items:
            if whole and is_cut(whole[-1]) and isinstance(item, Scalar):
                if not any(each.mark.place == whole[-1].mark.place for each in self.errors):
                    self.error(
                        YAML_SYNTAX,
                        f"the comma after {quoted(whole[-1].text)} ends the item",
                        whole[-1].mark,
                        LIST_COMMA,
                    )
                whole[-1] = together(whole[-1], item)
            else:
                whole.append(item)
        return whole

    def mapping(self, event: yaml.MappingStartEvent, depth: int) -> Map:
        entries: dict[str, Entry] = {}
        while not self.events.check_event(yaml.MappingEndEvent):
            key = self.node(depth + 1, event.flow_style)
            bare = event.flow_style and self.without_colon()
            value = self.node(depth + 1, event.flow_style)
            if bare and isinstance(key, Scalar):
                self.split_entry(key, entries)
            elif self.key_is_good(key, entries):
                entries[key.text] = Entry(key, value)
        end = self.events.get_event()
        return Map(self.mark(event.start_mark, end.end_mark), entries)

    def without_colon(self) -> bool:
        """Whether the value that comes next is one that nobody wrote, not even its colon."""
        event = self.events.peek_event()
        nothing = isinstance(event, yaml.ScalarEvent) and event.start_mark.index == event.end_mark.index
        return nothing and self.text[event.start_mark.index - 1] != ":"

    def split_entry(self, key: Scalar, entries: dict[str, Entry]):
        """A key without a colon. Where a comma inside parentheses made it, its value is put together again."""
        before = list(entries.values())[-1] if entries else None
        help = "in { } a comma ends an entry: write text that holds a comma in quotes"
        if before and is_cut(before.value):
            value = together(before.value, key)
            entries[before.key.text] = Entry(before.key, value)
            help += f', as in {before.key.text}: "{value.text}"'
        self.error(YAML_SYNTAX, f"the entry {quoted(key.text)} has no colon", key.mark, help)

    def key_is_good(self, key: Node, entries: dict[str, Entry]) -> bool:
        if not isinstance(key, Scalar):
            self.error(WRONG_KIND, "a key is a name, not a list or a mapping", key.mark)
        elif key.text == "<<":
            self.error(YAML_FEATURE, "merge keys are not read", key.mark, "write the keys out, or alias a whole value")
        elif key.text in entries:
            first = Note("first written here", entries[key.text].key.mark)
            self.error(DUPLICATE_KEY, f"duplicate key {quoted(key.text)}", key.mark, "remove one of the two", (first,))
        else:
            return True
        return False

    def syntax_error(self, error: yaml.MarkedYAMLError) -> Diagnostic:
        """PyYAML's error, what it was reading as a note, and help for the usual causes."""
        problem = error.problem or "cannot be read"
        mark, context = self.mark(error.problem_mark or error.context_mark), error.context_mark
        notes = ()
        if error.context and context and (context.line + 1, context.column + 1) != (mark.line, mark.column):
            notes = (Note(error.context, self.mark(context)),)
        help = next((words for pattern, words in SYNTAX_HELP if re.search(pattern, problem)), None)
        return Diagnostic(YAML_SYNTAX, in_words(problem, mark), mark, notes, help)


def in_words(problem: str, mark: Mark) -> str:
    """PyYAML's words with its names of tokens replaced: by the text that stands there, or by what it is."""
    there = re.match(r"[^\s,:\[\]{}]+", (mark.source or "")[mark.column - 1 :])
    words = TOKENS | ({"scalar": quoted(there[0]), "anchor": quoted(there[0])} if there else {})
    return re.sub(r"'?<([a-z ]+)>'?", lambda found: words.get(found[1], found[1]), problem)


TOKENS = {
    "scalar": "a text",
    "stream end": "the end of the file",
    "document end": "the end of the document",
    "block end": "the end of the entries",
    "block mapping start": "a mapping",
    "block sequence start": "a list",
    "block entry": "-",
}
LIST_COMMA = "in [ ] a comma ends an item: write text that holds a comma in quotes, or one item a line after -"
SYNTAX_HELP = (
    (r"but got '<stream end>'", "a bracket was opened and not closed"),
    (r"mapping values are not allowed here", 'write text that holds ": " in quotes'),
    (r"character '\\t'", "indent and separate with spaces; a tab stands only in comments and quotes"),
    (r"expected ',' or '[}\]]'", "close the bracket, or write text that holds one of , : [ ] { } # in quotes"),
    (r"could not find expected ':'", "a key is followed by a colon and a space"),
    (r"found unexpected end of stream", "a quote was opened and not closed"),
    (r"expected <block end>", "the entries of one mapping start in the same column"),
    (r"character '[`@%]'", "write text that starts with this character in quotes"),
)
