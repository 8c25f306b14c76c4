"""Numbers for the axes: from tensors or a workload, derived ones, and the constraints over them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from ...stages._contract import ceil_div
from ..diagnostics import codes
from ..diagnostics.errors import ChunkwiseError, Diagnostic, Note, by_place
from ..diagnostics.marks import Mark
from ..expression import ExpressionError, evaluate_number, in_64_bits, names_in, parse_expression
from .graph import Graph, Node, Term

FOLLOWS = {"N": ("B",), "NT": ("T", "C")}
"""Axes that complete() computes, each with what it follows from."""


def chunk_slots(sizes: Mapping[str, int], packed: bool) -> int:
    """NT: ceil(T / C), or for packed sequences a capacity that holds for any lengths."""
    T, C = sizes["T"], sizes["C"]
    return (T + sizes["N"] * (C - 1)) // C if packed else ceil_div(T, C)


def complete(graph: Graph, sizes: Mapping[str, int], n_packed: int | None = None) -> dict[str, int]:
    """Add the file's fixed axes, N (= B unless packed) and NT to the sizes of the inputs' axes."""
    result = {name: written.value for name, written in graph.spec.axes.items()} | dict(sizes)
    if n_packed is not None:
        result["N"] = n_packed
    elif "B" in result:
        result["N"] = result["B"]
    if {"T", "C", "N"} <= result.keys():
        result["NT"] = chunk_slots(result, n_packed is not None)
    return result


def size(term: Term, sizes: Mapping[str, int]) -> int:
    if isinstance(term, str) and term not in sizes:
        rule = f"{term} follows from {' and '.join(FOLLOWS[term])}: " if term in FOLLOWS else ""
        help = f"{rule}name the axis in an input, or write axes: {{{term if not rule else FOLLOWS[term][0]}: ...}}"
        raise ChunkwiseError(Diagnostic(codes.AXIS_SIZE, f"nothing gives the axis {term} a size", help=help))
    return term if isinstance(term, int) else sizes[term]


def shape(terms, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size(term, sizes) for term in terms)


def local_sizes(node: Node, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes under the stage's own axis names; only those that are known."""
    return {axis: size(term, sizes) for axis, term in node.axes.items() if isinstance(term, int) or term in sizes}


def holds(text: str, names: Mapping[str, int]) -> bool | None:
    """Whether a constraint holds; None while one of its axes has no number yet."""
    tree = parse_expression(text)
    if not names_in(tree) <= names.keys():
        return None
    return bool(evaluate_number(tree, names))


def figures(text: str, names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {names[name]}" for name in sorted(names_in(parse_expression(text))))


def size_errors(graph: Graph, sizes: Mapping[str, int]) -> list[Diagnostic]:
    """Constraints of the file and of every stage that the sizes break; those of an axis without a number wait, and so
    do those that speak of params: see known_parameters."""
    found, rules = [], []
    for written in graph.spec.constraints:
        if why := broken(written.value, sizes):
            found.append(Diagnostic(codes.CONSTRAINT, f"the constraint {why}", written.mark))
    for node in graph.nodes.values():
        names = local_sizes(node, sizes)
        rules += [(node, text, names) for text in node.stage.contract.requires]
    return [*found, *requirement_errors(rules)]


def requirement_errors(rules: Iterable[tuple[Node, str, Mapping[str, float]]]) -> list[Diagnostic]:
    """What stages require, and the numbers of these names break."""
    first: dict[str, Diagnostic] = {}
    for node, text, names in rules:
        why = broken(text, names)
        if why in first:
            # one wrong number is one error, however many stages mind it
            also = Note(f"{node.id} ({node.stage.name}) requires it too")
            first[why] = replace(first[why], notes=(*first[why].notes, also))
        elif why:
            first[why] = requirement_error(node, text, why, names)
    return list(first.values())


def broken(text: str, names: Mapping[str, int]) -> str | None:
    """Why a constraint does not hold, in words; None where it does, or has an axis without a number."""
    try:
        if holds(text, names) is not False:
            return None
        reason = "does not hold"
    except ExpressionError as error:
        reason = f"has no value ({error.message})"
    at = figures(text, names)
    return f"{text} {reason}" + (f" for {at}" if at else "")


def requirement_error(node: Node, text: str, why: str, names: Mapping[str, int]) -> Diagnostic:
    notes = tuple(
        Note(f"{axis} = {names[axis]} through {node.bound_by[axis].text}")
        for axis in sorted(names_in(parse_expression(text)))
        if axis in node.bound_by
    )
    return Diagnostic(codes.CONSTRAINT, f"{why}, and {node.id} ({node.stage.name}) requires it", node.mark, notes)


def parameters(graph: Graph, sizes: Mapping[str, int], given: Mapping[str, float]) -> dict[str, float]:
    """The pipeline's params for these sizes, with a call's own values in front.

    Raises ChunkwiseError with every param, of the file or bound by a stage, that has no value or one that the stage
    does not take; and with the broken constraints then, so that one run says all that these sizes break.
    """
    values, found = known_parameters(graph, sizes, given)
    if found:
        raise ChunkwiseError(*by_place([*size_errors(graph, sizes), *found]))
    return values


def known_parameters(
    graph: Graph, sizes: Mapping[str, int], given: Mapping[str, float]
) -> tuple[dict[str, float], list[Diagnostic]]:
    """The params whose axes all have numbers, an error for each that has no value then, and one for each value that a
    stage does not take."""
    values, found = {}, []
    for name, written in graph.spec.params.items():
        value = written.value if given.get(name) is None else given[name]
        try:
            if is_known(value, known := {**sizes, **values}):
                values[name] = number(f"the param {name}", value, known, written.mark)
        except ChunkwiseError as error:
            found += error.diagnostics
    names, rules = {**sizes, **values}, []
    for node in graph.nodes.values():
        its = {}
        for name, value in node.params.items():
            try:
                if is_known(value, names):
                    its[name] = number(f"{node.id}.{name}", value, names, node.mark)
            except ChunkwiseError as error:
                found += error.diagnostics
        if of_params := [text for text in node.stage.contract.requires if not named(text).isdisjoint(its)]:
            its |= local_sizes(node, sizes)
            rules += [(node, text, its) for text in of_params]
    return values, found + requirement_errors(rules)


@lru_cache(maxsize=1024)
def named(text: str) -> frozenset[str]:
    """The names in an expression."""
    return names_in(parse_expression(text))


def is_known(value: str | int | float, names: Mapping[str, float]) -> bool:
    return not isinstance(value, str) or value in names or names_in(parse_expression(value)) <= names.keys()


def node_parameters(node: Node, sizes: Mapping[str, int], params: Mapping[str, float]) -> dict[str, float]:
    names = {**sizes, **params}
    return {name: number(f"{node.id}.{name}", value, names, node.mark) for name, value in node.params.items()}


def number(what: str, value: str | int | float, names: Mapping[str, float], mark: Mark | None) -> float:
    """The value of an expression, as stages take it; what: whose value it is, for errors."""
    if not isinstance(value, str):
        return in_64_bits(value)
    if value in names:
        return in_64_bits(names[value])
    try:
        return in_64_bits(evaluate_number(parse_expression(value), names))
    except ExpressionError as error:
        at = figures(value, names)
        message = f"{what}: {error.message} in {value}" + (f", for {at}" if at else "")
        raise ChunkwiseError(Diagnostic(error.code or codes.EXPRESSION_VALUE, message, mark, help=error.help)) from None
