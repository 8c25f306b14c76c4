"""The edges of a base that a variant gives other sources, and those that it leaves without one."""

import re
from collections.abc import Iterable, Iterator, Mapping

from ..diagnostics.codes import NOT_IN_BASE, STILL_READ
from ..diagnostics.errors import Diagnostic, Note
from ..diagnostics.hints import nearest
from .yaml_nodes import Entry, Map, entries

MOST_NOTES = 8


def rewired(base: Map, changes: Mapping[str, Entry]) -> Map:
    """The base, everything that read a source reading another one. changes: source -> the new one, null for none."""
    stages = {}
    for name, stage in entries(base, "stages").items():
        ports = stage.value.entries.get("in")
        bound = {"in": Entry(ports.key, read_anew(ports.value, changes))} if ports else {}
        stages[name] = Entry(stage.key, with_entries(stage.value, bound))
    old, outputs = base.entries["stages"], base.entries["outputs"]
    new = {"stages": Entry(old.key, Map(old.value.mark, stages))}
    return with_entries(base, {**new, "outputs": Entry(outputs.key, read_anew(outputs.value, changes))})


def read_anew(edges: Map, changes: Mapping[str, Entry]) -> Map:
    """edges: name -> source, of the ports of a stage or of the outputs."""
    sources = {name: changes.get(edge.value.text, edge).value for name, edge in edges.entries.items()}
    kept = {name: Entry(edges.entries[name].key, each) for name, each in sources.items() if each.value is not None}
    return Map(edges.mark, kept)


def with_entries(node: Map, changes: Mapping[str, Entry]) -> Map:
    return Map(node.mark, {**node.entries, **changes})


def read_by_none(base: Map, changes: Mapping[str, Entry]) -> list[Diagnostic]:
    """Sources that a variant replaces and that nothing in the base reads."""
    name, sources = entries(base)["name"].value.text, {edge.value.text for _, edge in readers(base)}
    found = []
    for source, change in changes.items():
        if not any(reads(text, source) for text in sources):
            close = nearest(source, sources)
            help = f"did you mean {close}?" if close else f"its sources are {', '.join(sorted(sources))}"
            message = f"replace.edges: nothing in {name} reads {source}"
            found.append(Diagnostic(NOT_IN_BASE, message, change.key.mark, help=help))
    return found


def readers(root: Map) -> Iterator[tuple[str, Entry]]:
    """(who reads, the edge) of every port that is bound and of every output."""
    for stage, entry in entries(root, "stages").items():
        for port, edge in entries(entry.value, "in").items():
            yield f"{stage}.{port}", edge
    for name, edge in entries(root, "outputs").items():
        yield f"the output {name}", edge


def reads(text: str, source: str) -> bool:
    """Whether an edge written so reads ``input``, ``stage.port`` or, for ``stage.``, any port, alone or with others."""
    after = r"\w" if source.endswith(".") else r"(?![\w.])"
    return bool(re.search(rf"(?<![\w.]){re.escape(source)}{after}", text))


def still_read(root: Map, inputs: Mapping[str, Entry], stages: Mapping[str, Entry]) -> list[Diagnostic]:
    """Inputs and stages that were removed and that something still reads, each with its readers."""
    removed = [(f"the input {name}", name, entry) for name, entry in inputs.items()]
    removed += [(f"the stage {name}", f"{name}.", entry) for name, entry in stages.items()]
    found = []
    for what, source, entry in removed:
        edges = [(who, edge) for who, edge in readers(root) if reads(edge.value.text, source)]
        if edges:
            notes = tuple(Note(f"{who} reads {edge.value.text}", edge.value.mark) for who, edge in edges)
            help = way_out(entry.key.mark.file, [edge for _, edge in edges])
            message = f"{what} is removed and still read"
            found.append(Diagnostic(STILL_READ, message, entry.key.mark, notes[:MOST_NOTES], help))
    return found


def read_inside(root: Map, changes: Mapping[str, Entry]) -> list[Diagnostic]:
    """Edges of the base that read a replaced source as part of an expression, which no other source can stand for."""
    found = []
    for source, change in changes.items():
        for who, edge in readers(root):
            if edge.value.mark.file != change.key.mark.file and reads(edge.value.text, source):
                note = Note(f"{who} reads {edge.value.text}", edge.value.mark)
                message = f"replace.edges: {who} reads {source} in an expression, which stays as it is"
                help = "write that edge anew, under replace.stages or replace.outputs"
                found.append(Diagnostic(STILL_READ, message, change.key.mark, (note,), help))
    return found


def way_out(file: str, edges: Iterable[Entry]) -> str | None:
    """Help for edges that stand in other files than the one that removed what they read."""
    sources = dict.fromkeys(edge.value.text for edge in edges if edge.value.mark.file != file)
    if not sources:
        return None
    changes = ", ".join(f"{source}: ..." for source in sources)
    return f"under replace, edges: {{{changes}}} gives its readers another source; null unbinds them"
