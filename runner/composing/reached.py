"""What of a definition a search has reached, and what not: its prepared values, decays, states and outputs."""

from collections.abc import Iterator

import torch

from ..definition.types import HEADS
from ..expression import Binary, Call, Name, Node, Number, Unary, names_in
from ..expression.tree import children
from .assigned_once import ambiguous
from .feeding import Found
from .matching import STATES, same
from .readings import TRANSPARENT, Reading
from .search import Search

LINEAR = "decay/linear/token"


class Reached:
    """Answers for one search. by_node: the reading of a tree's node. assigned: name -> its tree, where it depends on
    no state."""

    def __init__(self, search: Search):
        self.search, self.case = search, search.case
        readings, definition = self.case.readings, self.case.readings.original
        self.by_node = {id(each.node): each for each in readings.values}
        self.rows = {each.id: rows for each, rows in self.case.known}
        recurrent = {id(each.node) for each in readings.values if each.recurrent}
        lines = (*definition.let, *definition.step)
        unclear = ambiguous(definition, self.case.spec.inputs)
        self.assigned = {
            each.target.id: each.value
            for each in lines
            if id(each.value) not in recurrent and each.target.id not in unclear
        }
        self.inputs: dict[int, list[str]] = {}
        self.found = [(each, search.truths.by_token(each.value, each.x)) for each in search.found]

    def value(self, node: Node, recurrent: bool = False) -> Found | None:
        """The first found value that is the node's. recurrent: it may depend on a state."""
        reading = self.by_node.get(id(node))
        if reading is None or reading.id not in self.rows or (reading.recurrent and not recurrent):
            return None
        known = self.rows[reading.id]
        return next((each for each, rows in self.found if by_token(each) and is_it(rows, known)), None)

    def log_of(self, rows: torch.Tensor) -> Found | None:
        """The found value that is the logarithm of a decay, or a sum of it inside chunks."""
        for each, own in self.found:
            unit = each.value.unit or ""
            if own is not None and unit.startswith("log_decay/ln") and is_it(own.exp(), rows):
                return each
        return None

    def state(self, name: str) -> Found | None:
        """The state as it enters each chunk, exactly."""
        truths = self.search.truths
        for each in self.search.found:
            if each.value.unit == STATES[0]:
                own = truths.laid_out(truths.chunk_entries, each.value).get(name)
                if own is not None and same(each.x, own):
                    return each
        return None

    def output(self, name: str) -> Found | None:
        return next((each for each in self.search.found if name in self.search.outputs_of(each)), None)

    def unserved(self, names: frozenset[str]) -> Reading | None:
        """The first value that recurrent lines of these targets read and no stage gives, the innermost of it."""
        return next((found for node in self.read_by(names) if (found := self.innermost(node)) is not None), None)

    def read_by(self, names: frozenset[str]) -> Iterator[Node]:
        """What recurrent lines of these targets read that depends on no state."""
        for each in self.case.readings.original.step:
            reading = self.by_node.get(id(each.value))
            if each.target.id in names and reading is not None and reading.recurrent:
                yield from self.direct(each.value)

    def direct(self, node: Node) -> Iterator[Node]:
        """The largest parts that depend on no state."""
        for child in children(node):
            reading = self.by_node.get(id(child))
            if reading is not None and reading.recurrent:
                yield from self.direct(child)
            elif reading is not None:
                yield child

    def innermost(self, node: Node) -> Reading | None:
        reading = self.by_node.get(id(node))
        if reading is None or self.value(node) is not None:
            return None
        if isinstance(node, Name):
            return self.innermost(self.assigned[node.id]) if node.id in self.assigned else None
        if not transparent(node) or any(isinstance(child, Number) for child in children(node)):
            return reading
        missing = next((found for child in children(node) if (found := self.innermost(child)) is not None), None)
        return reading if missing and isinstance(node, Binary) and node.op == "/" else missing

    def needs_no_state(self, node: Node) -> bool:
        """Whether a value can be made token by token of values that were found."""
        if self.value(node, recurrent=True) is not None:
            return True
        if isinstance(node, Name):
            return node.id not in self.case.readings.value_axes or node.id in self.assigned
        return all(self.needs_no_state(child) for child in children(node))

    def lanes(self, node: Node) -> list[str]:
        """The leading axes of a value: what its inputs have of B and T, and their one head axis, or the op's."""
        own = [self.case.head] if self.case.head else []
        if self.by_node[id(node)].recurrent:
            return ["B", "T", *own]
        axes = [self.case.values[name].axes for name in self.inputs_of(node)]
        heads = {axis for each in axes for axis in each if axis in HEADS}
        lanes = [axis for axis in ("B", "T") if any(axis in each for each in axes)]
        return lanes + ([next(iter(heads))] if len(heads) == 1 else own if heads else [])

    def inputs_of(self, node: Node) -> list[str]:
        """The inputs of the file that a value is made of."""
        if id(node) not in self.inputs:
            found = {}
            for name in sorted(names_in(node)):
                if name in self.assigned:
                    found |= dict.fromkeys(self.inputs_of(self.assigned[name]))
                elif name in self.case.values:
                    found[name] = None
            self.inputs[id(node)] = list(found)
        return self.inputs[id(node)]


def by_token(found: Found) -> bool:
    """Whether a value is a plain one, or a decay as it stands in a definition: no sum inside chunks."""
    return found.value.unit is None or found.value.unit in ("log_decay/ln/token", "log_decay/ln/slope", LINEAR)


def is_it(rows: torch.Tensor | None, known: torch.Tensor) -> bool:
    return rows is not None and same(rows, known)


def transparent(node: Node) -> bool:
    """Whether a stage that takes the parts can be as good as one that takes the whole: a product, a logarithm."""
    match node:
        case Unary() | Binary(op="*" | "/" | "@"):
            return True
        case Call(function=function):
            return function.id in TRANSPARENT
    return False


def depends_on(search: Search, names: frozenset[str]) -> frozenset[str]:
    """The names that values are made of, through any number of lines and tokens."""
    lines = search.case.readings.original.step
    while True:
        more = names.union(*(names_in(each.value) for each in lines if each.target.id in names))
        if more == names:
            return names
        names = more
