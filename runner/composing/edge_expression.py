"""Values that no stage gives, as expressions in the edge that reads them: ``in: {k: elu(k) + 1}``.

What an edge takes is the loader's to say, so a pipeline with the expression in it is read: nothing here knows its
grammar.
"""

from collections.abc import Mapping, Sequence

import torch

from ...stages import _laws
from ...stages._contract import IO, Port
from ..definition.types import HEADS
from ..diagnostics.errors import ChunkwiseError
from ..expression import Call, Name, Node, walk
from ..graphs.build_graph import term
from ..graphs.graph import Value
from ..loading.load_spec import parse_spec
from .algebra import Algebra, decay_port, exponent
from .reached import Reached, depends_on
from .writing import head, plain

Leaf = tuple[Value, torch.Tensor]


def expression_leaves(reached: Reached, facts: Sequence[Algebra]) -> list[Leaf]:
    """The decays and other values that the recurrence reads, no stage gives, and an edge can say."""
    leaves, names = {}, depends_on(reached.search, frozenset(reached.case.outputs))
    names |= depends_on(reached.search, frozenset(reached.case.readings.state_axes))
    for fact in facts:
        if fact.decay is not None and reached.log_of(fact.decay_rows) is None:
            node, log = exponent(fact)
            text = as_edge_expression(node, reached)
            add_leaf(
                leaves,
                f"log({text})" if log and text else text,
                decay_port(fact, reached.case),
                fact.decay_rows.log(),
                reached,
            )
    for reading in reached.unserved(names):
        port = Port(" ".join([*reached.lanes(reading.node), *reading.axes]), IO)
        add_leaf(leaves, as_edge_expression(reading.node, reached), port, reached.rows[reading.id], reached)
    return list(leaves.values())


def add_leaf(leaves: dict[str, Leaf], text: str | None, port: Port, rows: torch.Tensor, reached: Reached) -> None:
    """rows: the value as the definition's evaluation lays it out, [B, T, heads, inner axes...]."""
    if text is None or not edge_takes(text, reached):
        return
    case = reached.case
    axes = tuple(term(axis) for axis in port.axes)
    laws = (_laws.parse(port.where),) if port.where else ()
    x = rows
    for at, axis in enumerate(("B", "T")):
        x = x if axis in port.axes else x.narrow(at, 0, 1)
    own = next((axis for axis in port.axes if axis in HEADS), None)
    if own and own != case.head:
        x = x[:, :, :: case.sizes[case.head] // case.sizes[own]]
    shape = [case.sizes[axis] for axis in port.axes]
    value = Value(text, axes, port.dtype, port.unit, laws, None, text, None)
    leaves.setdefault(text, (value, x.reshape(shape)))


def as_edge_expression(node: Node, reached: Reached) -> str | None:
    """The text of a value over the file's inputs: names that lines assign are replaced by what they stand for."""
    reading = reached.by_node.get(id(node))
    if reading is None or isinstance(node, Name):
        return None
    return plain(inlined(node, reached.by_node, reached.assigned))


def inlined(node: Node, by_node: Mapping, assigned: Mapping[str, Node]) -> str:
    line = by_node[id(node)].line.text
    text, end = "", node.end
    for name in sorted((each for each in walk(node) if isinstance(each, Name)), key=lambda each: -each.start):
        if name.id in assigned:
            inside = assigned[name.id]
            own = plain(inlined(inside, by_node, assigned))
            own = own if isinstance(inside, Name | Call) else f"({own})"
            text = f"{own}{line[name.end : end]}{text}"
            end = name.start
    return f"{line[node.start : end]}{text}"


def edge_takes(text: str, reached: Reached) -> bool:
    """Whether a pipeline with these inputs and params may have the text in an edge."""
    tail = f'stages:\n  reader:\n    use: reader\n    in:\n      x: "{text}"\noutputs: {{y: reader.y}}\n'
    try:
        parse_spec(f"{head(reached.case.spec, False)}\n{tail}", "edge")
    except ChunkwiseError:
        return False
    return True
