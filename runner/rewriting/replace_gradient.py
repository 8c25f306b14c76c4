"""The graph after a backward pass was replaced: some stages in the place of many, over the same boundary values."""

from collections.abc import Mapping
from dataclasses import replace

from ..backward.derive import sum_stage
from ..graphs.graph import Graph, Node, Term, Value
from ..graphs.unify import GLOBAL_AXES
from ..stage_files.stage_library import Stage
from .gradient_match import GradientMatch
from .gradient_pattern import gradient_stages, replacement
from .pattern import Stages
from .replace_part import in_order


def with_gradient_replaced(
    graph: Graph, match: GradientMatch, stage: Stage, stages: Mapping[str, Stage]
) -> Graph | None:
    """The values at the boundary keep their names. A sum at an input goes with the contributions where there are no
    others, else it takes one in their place. None where the stages need what is neither read there nor an input."""
    whole = replacement(stage, Stages(stages), match.absent, match.cotangents)
    makes = {whole.outputs.get(f"d_{name}"): name for name in match.wanted}
    parts = needed(whole, stage, set(makes) - {None})
    read = {value for part in parts for value in part.inputs.values() if value}
    given = {name: value for name, value in match.forward.values.items() if value in graph.inputs}
    incoming = {f"d_{name}": match.reads.get(f"d({name})") for name in match.cotangents}
    known = {**given, **match.reads, **incoming}
    outside = {value for value in read if whole.values[value].producer not in {part.id for part in parts}}
    if None in makes or not all(known.get(value) for value in outside):
        return None
    ends = {value: Boundary(match.given[name], whole.values[value], graph) for value, name in makes.items()}
    if not all(end.fits for end in ends.values()):
        return None
    prefix = f"{match.forward.last}.vjp"
    names = {value: known[value] for value in outside} | {
        value: ends[value].name or f"{prefix}.{value}" if value in ends else f"{prefix}.{value}"
        for part in parts
        for value in part.outputs.values()
    }
    axes = {axis: axis for axis in GLOBAL_AXES}
    for value in outside:
        axes |= zip(whole.values[value].axes, graph.values[names[value]].axes)
    placed = [place(part, f"{prefix}.{part.id}", names, axes, match, graph) for part in parts]
    return over(graph, match, placed, whole, names, axes, ends)


def needed(whole: Graph, stage: Stage, wanted: set[str]) -> list[Node]:
    """The stages that the gradients need, in order, with the outputs that are read."""
    found, own = [], gradient_stages(stage).stages
    for node in reversed(whole.nodes.values()):
        outputs = {port: value for port, value in node.outputs.items() if value in wanted}
        if outputs and node.id in own:
            found.append(replace(node, outputs=outputs))
            wanted = wanted | {value for value in node.inputs.values() if value}
    return found[::-1]


class Boundary:
    """Where one new value goes that stands for several contributions to a gradient. name: of the graph's value that it
    is, None where a sum takes it in beside others; then sum is that node."""

    def __init__(self, given: list[str], value: Value, graph: Graph):
        readers = {id for each in given for id, _ in graph.consumers(each)}
        self.given, self.sum, self.name, self.fits = given, None, None, True
        if len(given) == 1:
            self.name, self.fits = given[0], graph.values[given[0]].dtype == value.dtype
            return
        self.sum = graph.nodes[next(iter(readers))] if len(readers) == 1 else None
        if self.sum is None or self.sum.stage.name != "gradient_sum" or set(given) & set(graph.gradients.values()):
            self.fits = False
        elif set(self.sum.inputs.values()) == set(given) and graph.values[self.sum.outputs["y"]].dtype == value.dtype:
            self.name = self.sum.outputs["y"]


def place(part: Node, id: str, names: Mapping, axes: Mapping[str, Term], match: GradientMatch, graph: Graph) -> Node:
    last = graph.nodes[match.forward.last]
    return replace(
        part,
        id=id,
        inputs={port: names[value] if value else None for port, value in part.inputs.items()},
        outputs={port: names[value] for port, value in part.outputs.items()},
        axes={axis: axes.get(term, term) for axis, term in part.axes.items()},
        params={name: match.forward.params.get(value, value) for name, value in part.params.items()},
        mark=last.mark,
        phase="backward",
    )


def over(graph: Graph, match: GradientMatch, placed: list[Node], whole: Graph, names, axes, ends) -> Graph:
    """The graph with the placed nodes, without those that go, and with smaller sums."""
    summed = [end.sum for end in ends.values() if end.sum]
    dropped = {end.sum.id for end in ends.values() if end.sum and end.name}
    gone = [id for id in graph.nodes if id in {*match.nodes, *dropped}]
    nodes = {id: node for id, node in graph.nodes.items() if id not in gone}
    values = {name: value for name, value in graph.values.items() if value.producer not in gone}
    for node in placed:
        nodes[node.id] = replace(node, replaces=tuple(gone))
        for port, name in node.outputs.items():
            made = next(value for value, each in names.items() if each == name)
            typed = replace(whole.values[made], axes=tuple(axes.get(axis, axis) for axis in whole.values[made].axes))
            values[name] = replace(typed, name=name, producer=node.id, port=port, mark=node.mark)
    for node in summed:
        if node.id not in dropped:
            nodes[node.id] = smaller(nodes[node.id], {v: names[v] for v in ends}, ends, values)
    place = [each for id in graph.nodes for each in ([id, *(n.id for n in placed)] if id == gone[0] else [id])]
    return replace(graph, values=values, nodes=in_order(nodes, values, place), file=graph.file or graph)


def smaller(node: Node, names: Mapping[str, str], ends: Mapping[str, Boundary], values: Mapping[str, Value]) -> Node:
    """A sum with one contribution in the place of those that went."""
    here = {value: end for value, end in ends.items() if end.sum and end.sum.id == node.id}
    instead = {each: names[value] for value, end in here.items() for each in end.given}
    parts = list(dict.fromkeys(instead.get(part, part) for part in node.inputs.values()))
    total = values[node.outputs["y"]]
    name = node.id.removeprefix("d(").partition(")")[0]
    doc = f"Sum of the {len(parts)} contributions to the gradient of {name}."
    stage = sum_stage(total.axes, [values[part].dtype for part in parts], total.dtype, doc)
    return replace(node, stage=stage, inputs={f"x{i}": part for i, part in enumerate(parts)})
