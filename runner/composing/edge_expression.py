"""Values that no stage gives, as expressions in the edge that reads them: ``in: {k: elu(k) + 1}``.

What an edge takes is the loader's to say, so a pipeline with the expression in it is read: nothing here knows its
grammar.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch

from ...stages import _laws
from ...stages._contract import Port
from ..definition.types import HEADS
from ..diagnostics.errors import ChunkwiseError
from ..expression import Call, Name, Node, walk
from ..expression.parse import MAX_LENGTH
from ..expression.tree import children
from ..graphs.build_graph import term
from ..graphs.graph import Value
from ..loading.load_spec import parse_spec
from .algebra import Algebra, decay_port, exponent
from .feeding import Found
from .reached import Reached, depends_on, transparent
from .writing import head, plain

Leaf = tuple[Value, torch.Tensor]


def expression_leaves(reached: Reached, facts: Sequence[Algebra]) -> list[Leaf]:
    """The decays and other values that the recurrence reads, or that those are made of, no stage gives, and an edge
    can say."""
    leaves, names = {}, depends_on(reached.search, frozenset(reached.case.outputs))
    names |= depends_on(reached.search, frozenset(reached.case.readings.state_axes))
    for fact in facts:
        if fact.decay is not None and reached.log_of(fact.decay_rows) is None:
            node, log = exponent(fact)
            text = as_edge_expression(node, reached)
            text = f"log({text})" if log and text else text
            if text and edge_takes(text, reached):
                leaves[text] = leaf(text, decay_port(fact, reached.case), fact.decay_rows.log(), reached)
    seen: dict[int, int] = {}
    for node in reached.read_by(names):
        for each, text in said(node, reached, seen):
            reading = reached.by_node[id(each)]
            port = Port(" ".join([*reached.lanes(each), *reading.axes]))
            leaves.setdefault(text, leaf(text, port, reached.rows[reading.id], reached))
    return list(leaves.values())


def said(node: Node, reached: Reached, seen: dict[int, int], deep: int = 0) -> Iterator[tuple[Node, str]]:
    """The parts of a value that no stage gives and an edge can say: the largest, and what products are made of. Of
    ``a * b * c * d``, all along the same axes, that is the whole, ``a * b * c``, and each factor: every part in between
    would be one more value for every port, and a stage takes two or three factors at most.

    deep: products of the same axes that the node is a part of, 2 for more. seen: by id of a node, the least of that
    with which it was here; a line that many lines read is gone through once.
    """
    reading = reached.by_node.get(id(node))
    if reading is None or seen.get(id(node), 3) <= deep or reached.value(node) is not None:
        return
    seen[id(node)] = deep
    if isinstance(node, Name):
        if node.id in reached.assigned:
            yield from said(reached.assigned[node.id], reached, seen, deep)
        return
    text, product = as_edge_expression(node, reached), transparent(node)
    takes = len(reading.axes) < 2 and text is not None and edge_takes(text, reached)
    if takes and (deep < 2 or not product):
        yield node, text
    if not takes or product:
        for child in children(node):
            yield from said(child, reached, seen, min(deep + 1, 2) if takes and alike(node, child, reached) else 0)


def alike(node: Node, child: Node, reached: Reached) -> bool:
    inside = reached.by_node.get(id(child))
    return inside is not None and inside.axes == reached.by_node[id(node)].axes


def leaf(text: str, port: Port, rows: torch.Tensor, reached: Reached) -> Leaf:
    """rows: the value as the definition's evaluation lays it out, [B, T, heads, inner axes...]."""
    case = reached.case
    axes = tuple(term(axis) for axis in port.axes)
    laws = (_laws.parse(port.where),) if port.where else ()
    for at, axis in enumerate(("B", "T")):
        rows = rows if axis in port.axes else rows.narrow(at, 0, 1)
    own = next((axis for axis in port.axes if axis in HEADS), None)
    if own and own != case.head:
        rows = rows[:, :, :: case.sizes[case.head] // case.sizes[own]]
    value = Value(text, axes, port.dtype, port.unit, laws, None, text, None)
    return value, rows.reshape([case.sizes[axis] for axis in port.axes])


def said_output(reached: Reached, name: str) -> Found | None:
    """An output that no stage gives, as an expression over values that were found, if an edge can say it."""
    lines = [each for each in reached.case.readings.original.step if each.target.id == name]
    if not lines or not reached.needs_no_state(lines[-1].value):
        return None
    node = lines[-1].value
    try:
        parts = pieces(node, reached)
    except TooLong:
        return None
    text = "".join(part if isinstance(part, str) else "stage.port" for part in parts)
    if not edge_takes(text, reached):
        return None
    port = Port(" ".join(reached.case.output_axes[name]))
    value, x = leaf(text, port, reached.rows[reached.by_node[id(node)].id], reached)
    return Found(-1, value, x, True, True, 0, parts=parts)


def pieces(node: Node, reached: Reached) -> tuple[str | Found, ...]:
    """The text of a value with the found ones in it that depend on a state, and assigned names written out."""
    line, parts, end = reached.by_node[id(node)].line.text, [], node.start
    for at, part in replaced(node, reached):
        parts += [line[end : at.start], part]
        end = at.end
    return (*parts, line[end : node.end])


def replaced(node: Node, reached: Reached) -> Iterator[tuple[Node, str | Found]]:
    """The largest parts of a tree that stand for something else, in the order of the text, each with that."""
    reading = reached.by_node.get(id(node))
    if reading is not None and reading.recurrent and (found := reached.value(node, recurrent=True)) is not None:
        yield node, found
    elif isinstance(node, Name) and node.id in reached.assigned:
        yield node, f"({plain(inlined(reached.assigned[node.id], reached.by_node, reached.assigned))})"
    else:
        for child in children(node):
            yield from replaced(child, reached)


def as_edge_expression(node: Node, reached: Reached) -> str | None:
    """The text of a value over the file's inputs: names that lines assign are replaced by what they stand for. None
    where that is no expression, or too long for one."""
    reading = reached.by_node.get(id(node))
    if reading is None or isinstance(node, Name):
        return None
    try:
        return plain(inlined(node, reached.by_node, reached.assigned))
    except TooLong:
        return None


class TooLong(Exception):
    """Written out, a value is longer than an expression may be: each line may double what the one before it holds."""


def inlined(node: Node, by_node: Mapping, assigned: Mapping[str, Node]) -> str:
    """Raises TooLong."""
    line = by_node[id(node)].line.text
    text, end = "", node.end
    for name in sorted((each for each in walk(node) if isinstance(each, Name)), key=lambda each: -each.start):
        if name.id in assigned:
            inside = assigned[name.id]
            own = plain(inlined(inside, by_node, assigned))
            own = own if isinstance(inside, Name | Call) else f"({own})"
            text = f"{own}{line[name.end : end]}{text}"
            end = name.start
            if len(text) > MAX_LENGTH:
                raise TooLong
    return f"{line[node.start : end]}{text}"


def edge_takes(text: str, reached: Reached) -> bool:
    """Whether a pipeline with these inputs and params may have the text in an edge."""
    tail = f'stages:\n  reader:\n    use: reader\n    in:\n      x: "{text}"\noutputs: {{y: reader.y}}\n'
    try:
        parse_spec(f"{head(reached.case.spec, False)}\n{tail}", "edge")
    except ChunkwiseError:
        return False
    return True
