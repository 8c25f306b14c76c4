"""Numbers for the axes: from tensors or a workload, derived ones, and the constraints over them."""

from collections.abc import Mapping

from ..stages._contract import ceil_div
from . import codes
from .errors import Diagnostic, Note
from .expression import ExpressionError, evaluate_number, names_in, parse_expression
from .graph import Graph, Node, Term


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
    """Constraints of the file and of every stage that the sizes break. The one predicate of check, run and calls."""
    found = []
    for written in graph.spec.constraints:
        try:
            if holds(written.value, sizes) is False:
                message = f"{written.value} does not hold for {figures(written.value, sizes)}"
                found.append(Diagnostic(codes.CONSTRAINT, message, written.mark))
        except ExpressionError as error:
            found.append(Diagnostic(codes.CONSTRAINT, str(error), written.mark))
    for node in graph.nodes.values():
        names = local_sizes(node, sizes)
        for text in node.stage.contract.requires:
            if holds(text, names) is False:
                message = f"{node.id} ({node.stage.name}) requires {text}, here {figures(text, names)}"
                notes = tuple(
                    Note(f"{axis} = {names[axis]} through {node.bound_by[axis]}")
                    for axis in sorted(names_in(parse_expression(text)))
                    if axis in node.bound_by
                )
                found.append(Diagnostic(codes.CONSTRAINT, message, node.mark, notes))
    return found


def parameters(graph: Graph, sizes: Mapping[str, int], given: Mapping[str, float]) -> dict[str, float]:
    """The pipeline's params for these sizes, with a call's own values in front."""
    result = dict(sizes)
    for name, written in graph.spec.params.items():
        result[name] = given[name] if given.get(name) is not None else number(written.value, result)
    return {name: result[name] for name in graph.spec.params}


def node_parameters(node: Node, sizes: Mapping[str, int], params: Mapping[str, float]) -> dict[str, float]:
    return {name: number(value, {**sizes, **params}) for name, value in node.params.items()}


def number(value: str | int | float, names: Mapping[str, float]) -> float:
    if not isinstance(value, str):
        return value
    if value in names:
        return names[value]
    return evaluate_number(parse_expression(value), names)
