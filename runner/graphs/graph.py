"""A pipeline with every name resolved: nodes, values, and what fixed each axis, dtype and unit.

Forward, rebuild and backward are one graph; ``Node.phase`` tells them apart. A graph is built for one
pattern of absent optional inputs: a node whose required input is absent is not in it, and an absent value is
None wherever it would be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import networkx as nx

from ...stages._laws import Law
from ..diagnostics.marks import Mark
from ..loading.spec import PipelineSpec
from ..stage_files.stage_library import Stage

Term = str | int
"""A solved axis: a name of the pipeline (B, T, H, ...) or a fixed size."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph.

    name: an input's name, or ``node.port``. producer: node id, None for an input.
    axes, dtype, unit, laws: as solved. mark: where the value was first written. written: the places of an input's
    shape, dtype, unit and where, as far as the file has them.
    """

    name: str
    axes: tuple[Term, ...]
    dtype: str
    unit: str | None
    laws: tuple[Law, ...]
    producer: str | None
    port: str
    mark: Mark | None
    written: Mapping[str, Mark | None] = field(default_factory=dict)

    def mark_of(self, part: str) -> Mark | None:
        """Where shape, dtype, unit or where comes from."""
        return self.written.get(part) or self.mark


@dataclass(frozen=True)
class Origin:
    """What first fixed an axis or a unit variable of a stage.

    text: an edge in words, ``scan.k from k``, or a port that is bound or absent. mark: where that is written.
    port: the stage's port. value: the value that it reads, None where the port's presence says enough.
    """

    text: str
    mark: Mark | None
    port: str
    value: str | None = None


@dataclass(frozen=True)
class Node:
    """A stage at its place. inputs: port -> value name, or None when absent. outputs: port -> value name.

    axes: the stage's axis -> the pipeline's. params: name -> expression text over the pipeline's params and axes,
    or a number. bound_by: axis of the stage -> the edge that fixed it. units: unit variable of the stage -> its value,
    units_by: what fixed it. edge_marks: input port -> where its edge is written. replaces: the nodes of the file whose
    work it does, where a rewrite put it there.
    """

    id: str
    stage: Stage
    inputs: Mapping[str, str | None]
    outputs: Mapping[str, str]
    axes: Mapping[str, Term]
    params: Mapping[str, str | float]
    mark: Mark | None
    phase: str = "forward"
    recompute: bool = False
    bound_by: Mapping[str, Origin] = field(default_factory=dict)
    units: Mapping[str, str | None] = field(default_factory=dict)
    units_by: Mapping[str, Origin] = field(default_factory=dict)
    edge_marks: Mapping[str, Mark] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """nodes stand in a topological order that depends on the edges and the file alone.

    With a backward pass (backward/derive.py): cotangents, output -> the value that brings its gradient in;
    gradients, input -> the value that is its gradient; kept, the forward values that backward reads.
    file: the graph as the file has it, where a rewrite made this one. notes: what a user should know of rewrites.
    """

    spec: PipelineSpec
    absent: frozenset[str]
    inputs: Mapping[str, Value]
    values: Mapping[str, Value]
    nodes: Mapping[str, Node]
    outputs: Mapping[str, str | None]
    cotangents: Mapping[str, str] = field(default_factory=dict)
    gradients: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    file: "Graph | None" = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def mutated(self) -> Mapping[str, str]:
        """Value -> the input that it is written over."""
        return {
            node.outputs[port]: node.inputs[over]
            for node in self.nodes.values()
            for port, over in node.stage.contract.mutated.items()
            if port in node.outputs
        }

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Every axis name of the graph, in order of appearance."""
        seen = dict.fromkeys(axis for value in self.values.values() for axis in value.axes if isinstance(axis, str))
        return tuple(seen)

    @cached_property
    def read_later(self) -> frozenset[str]:
        """Values that the rebuild and backward phases read."""
        later = [node for node in self.nodes.values() if node.phase != "forward"]
        return frozenset(name for node in later for name in node.inputs.values() if name)

    @cached_property
    def inputs_read_later(self) -> tuple[str, ...]:
        return tuple(name for name in self.inputs if name in self.read_later)

    def consumers(self, value: str) -> list[tuple[str, str]]:
        """(node id, port) of every reader of a value, in topological order."""
        return [(node.id, port) for node in self.nodes.values() for port, name in node.inputs.items() if name == value]

    def digraph(self) -> nx.MultiDiGraph:
        """Nodes by id, edges keyed by consumer port with ``value``."""
        result = nx.MultiDiGraph()
        result.add_nodes_from(self.nodes)
        for node in self.nodes.values():
            for port, name in node.inputs.items():
                producer = name and self.values[name].producer
                if producer:
                    result.add_edge(producer, node.id, key=port, value=name)
        return result
