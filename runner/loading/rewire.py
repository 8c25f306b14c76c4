"""The edges of a base that a variant gives other sources, and those that it leaves without one."""

import re
from collections.abc import Iterable, Mapping

from ..diagnostics.codes import STILL_READ
from ..diagnostics.errors import Diagnostic, Note
from .yaml_nodes import Entry, Map, entries

MOST_NOTES = 8
SOURCE_IN = re.compile(r"(?<![\w.])[A-Za-z]\w*(?:\.[A-Za-z]\w*)?")
"""``input`` or ``stage.port`` in the text of an edge."""
Readers = dict[str, list[tuple[str, Entry]]]


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


def readers(root: Map) -> Readers:
    """Every source that a port or an output reads, alone or in an expression -> who reads it, and the edge."""
    found: Readers = {}
    edges = [
        (f"{stage}.{port}", edge)
        for stage, entry in entries(root, "stages").items()
        for port, edge in entries(entry.value, "in").items()
    ]
    edges += [(f"the output {name}", edge) for name, edge in entries(root, "outputs").items()]
    for who, edge in edges:
        for source in dict.fromkeys(SOURCE_IN.findall(edge.value.text)):
            found.setdefault(source, []).append((who, edge))
    return found


def still_read(root: Map, inputs: Mapping[str, Entry], stages: Mapping[str, Entry]) -> list[Diagnostic]:
    """Inputs and stages that were removed and that something still reads, each with its readers."""
    found, of_stage, of_source = [], {}, readers(root)
    for source, edges in of_source.items():
        if "." in source:
            of_stage.setdefault(source.partition(".")[0], []).extend(edges)
    removed = [(f"the input {name}", of_source.get(name), entry) for name, entry in inputs.items()]
    removed += [(f"the stage {name}", of_stage.get(name), entry) for name, entry in stages.items()]
    for what, edges, entry in removed:
        if edges:
            help = way_out(entry.key.mark.file, [edge for _, edge in edges])
            message = f"{what} is removed and still read"
            found.append(Diagnostic(STILL_READ, message, entry.key.mark, reader_notes(edges), help))
    return found


def read_inside(root: Map, changes: Mapping[str, Entry]) -> list[Diagnostic]:
    """Edges of the base that read a replaced source as part of an expression, which no other source can stand for."""
    found, of_source = [], readers(root)
    for source, change in changes.items():
        edges = [each for each in of_source.get(source, ()) if each[1].value.mark.file != change.key.mark.file]
        if edges:
            message = f"replace.edges: {source} is read in expressions, and these stay as they are"
            help = "write those edges anew, under replace.stages or replace.outputs"
            found.append(Diagnostic(STILL_READ, message, change.key.mark, reader_notes(edges), help))
    return found


def reader_notes(edges: Iterable[tuple[str, Entry]]) -> tuple[Note, ...]:
    return tuple(Note(f"{who} reads {edge.value.text}", edge.value.mark) for who, edge in edges)[:MOST_NOTES]


def way_out(file: str, edges: Iterable[Entry]) -> str | None:
    """Help for edges that stand in other files than the one that removed what they read."""
    sources = dict.fromkeys(edge.value.text for edge in edges if edge.value.mark.file != file)
    if not sources:
        return None
    changes = ", ".join(f"{source}: ..." for source in sources)
    return f"under replace, edges: {{{changes}}} gives its readers another source; null unbinds them"
