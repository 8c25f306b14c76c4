"""Everything that two pipelines do not have in common but name, summary, source, docs and the order of their parts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from ..graphs.graph import Graph, Node, Value
from ..loading.spec import DefinitionSpec, InputSpec, PipelineSpec, Written
from .changes import Change
from .match_nodes import match_nodes, renamed


@dataclass(frozen=True)
class Difference:
    """matches: ids of nodes of old -> of new. changes: in the order of PARTS, then of the files."""

    old: Graph
    new: Graph
    matches: Mapping[str, str]
    changes: tuple[Change, ...]

    def id_in_new(self, node: str) -> str:
        """What a node of old is called beside those of new: one that is gone takes the name of no other."""
        if node in self.matches:
            return self.matches[node]
        return f"{node} ({self.old.name})" if node in self.new.nodes or node in self.new.inputs else node


def difference(old: Graph, new: Graph) -> Difference:
    """Both as solved with every input present."""
    matches = match_nodes(old, new)
    changes = [*spec_changes(old.spec, new.spec)]
    changes += stage_changes(old, new, matches)
    changes += edge_changes(old, new, matches)
    changes += value_changes(old, new, matches)
    sources = {name: renamed(old, source, matches) for name, source in old.outputs.items()}
    changes += facts("outputs", sources, new.outputs)
    return Difference(old, new, matches, tuple(changes))


def facts(part: str, old: Mapping[str, str], new: Mapping[str, str], what: str = "") -> Iterator[Change]:
    """A change for each name whose text is another one."""
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            yield Change(part, name, what, old.get(name), new.get(name))


# --- the files' own parts


def spec_changes(old: PipelineSpec, new: PipelineSpec) -> Iterator[Change]:
    yield from facts("axes", texts(old.axes), texts(new.axes))
    yield from input_changes(old.inputs, new.inputs)
    yield from facts("params", texts(old.params), texts(new.params))
    yield from line_changes("constraints", "", old.constraints, new.constraints)
    nothing = DefinitionSpec(old.mark)
    before, after = old.definition or nothing, new.definition or nothing
    yield from facts("definition", texts(before.state), texts(after.state), "state")
    for key in ("let", "step", "dense"):
        yield from line_changes("definition", key, getattr(before, key), getattr(after, key))
    yield from facts("definition", texts(before.final), texts(after.final), "final")


def texts(written: Mapping[str, Written]) -> dict[str, str]:
    return {name: each.text for name, each in written.items()}


def input_changes(old: Mapping[str, InputSpec], new: Mapping[str, InputSpec]) -> Iterator[Change]:
    for name in {**old, **new}:
        before, after = (input_facts(each[name]) if name in each else None for each in (old, new))
        if before is None or after is None:
            yield Change("inputs", name, "", before and in_words(before), after and in_words(after))
        else:
            for what in {**before, **after}:
                if before.get(what) != after.get(what):
                    yield Change("inputs", name, what, before.get(what), after.get(what))


def input_facts(entry: InputSpec) -> dict[str, str]:
    found = {"shape": " ".join(entry.shape), "dtype": entry.dtype, "unit": entry.unit}
    found["where"] = ", ".join(str(law.value) for law in entry.where)
    found["optional"] = "true" if entry.optional else ""
    found["default"] = str(entry.default.value) if entry.default else ""
    found["mutates"] = "true" if entry.mutates else ""
    found["slots"] = str(entry.slots.value) if entry.slots else ""
    return {what: text for what, text in found.items() if text}


def in_words(found: Mapping[str, str]) -> str:
    return ", ".join("optional" if what == "optional" else text for what, text in found.items())


def line_changes(part: str, what: str, old: tuple[Written, ...], new: tuple[Written, ...]) -> Iterator[Change]:
    before, after = [str(line.value) for line in old], [str(line.value) for line in new]
    for kind, low, high, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            yield from (Change(part, "", what, line, None) for line in before[low:high])
            yield from (Change(part, "", what, None, line) for line in after[start:end])


# --- the graph


def pairs(old: Graph, new: Graph, matches: Mapping[str, str]) -> Iterator[tuple[Node, Node]]:
    """The nodes of both, in the order of the new graph."""
    back = {after: before for before, after in matches.items()}
    return ((old.nodes[back[name]], node) for name, node in new.nodes.items() if name in back)


def stage_changes(old: Graph, new: Graph, matches: Mapping[str, str]) -> Iterator[Change]:
    for node in old.nodes.values():
        if node.id not in matches:
            yield Change("stages", node.id, "", node_words(node), None)
    for node in new.nodes.values():
        if node.id not in matches.values():
            yield Change("stages", node.id, "", None, node_words(node))
    for before, after in pairs(old, new, matches):
        if before.id != after.id:
            yield Change("stages", after.id, "", before.id, after.id, renamed=True)
        yield from named(after.id, facts("stages", {"use": before.stage.name}, {"use": after.stage.name}))
        yield from named(after.id, facts("stages", params_of(before), params_of(after)))
        again = ({"recompute": str(node.recompute).lower()} for node in (before, after))
        yield from named(after.id, facts("stages", *again))


def named(owner: str, changes: Iterator[Change]) -> Iterator[Change]:
    """Changes of the facts of one owner."""
    return (Change(each.part, owner, each.name, each.before, each.after) for each in changes)


def params_of(node: Node) -> dict[str, str]:
    return {name: str(value) for name, value in node.params.items()}


def node_words(node: Node) -> str:
    """``l2norm, x <- q``"""
    ports = [f"{port} <- {source}" for port, source in node.inputs.items() if source]
    return ", ".join([node.stage.name, *ports, *(f"{name} = {value}" for name, value in params_of(node).items())])


def edge_changes(old: Graph, new: Graph, matches: Mapping[str, str]) -> Iterator[Change]:
    for before, after in pairs(old, new, matches):
        sources = {port: renamed(old, source, matches) for port, source in before.inputs.items() if source}
        bound = {port: source for port, source in after.inputs.items() if source}
        for change in facts("edges", sources, bound):
            yield Change("edges", f"{after.id}.{change.name}", "", change.before, change.after)


def value_changes(old: Graph, new: Graph, matches: Mapping[str, str]) -> Iterator[Change]:
    """Types of what the matched nodes give."""
    for before, after in pairs(old, new, matches):
        for port in after.outputs:
            if port in before.outputs:
                types = (value_facts(old.values[before.outputs[port]]), value_facts(new.values[after.outputs[port]]))
                for change in facts("values", *types):
                    yield Change("values", f"{after.id}.{port}", change.name, change.before, change.after)


def value_facts(value: Value) -> dict[str, str]:
    found = {"shape": " ".join(map(str, value.axes)), "dtype": value.dtype, "unit": value.unit}
    found["where"] = ", ".join(law.text for law in value.laws)
    return {what: text for what, text in found.items() if text}
