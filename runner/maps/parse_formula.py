"""The text of an edge's expression to its tree: the grammar of definitions, as far as it is elementwise."""

import re

from ..definition.functions import DENSE, FUNCTIONS
from ..expression import Binary, Call, ExpressionError, Name, Node, Number, Unary, hint, parse_expression
from ..expression.number import check_exponent, evaluate_number
from ..expression.tree import walk

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}(?:\.[A-Za-z][A-Za-z0-9_]{0,63})?")
"""A source that is no expression: an input, or ``stage.port``."""

STAGE_FOR = {
    "norm": "the stage l2norm divides rows by their norm over K",
    "softmax": "the stage softmax_k is the softmax over K",
}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def formula_problem(text: str) -> ExpressionError | None:
    """What is wrong with the source of an edge, before its names mean anything."""
    if PLAIN.fullmatch(text):
        return None
    try:
        parse_formula(text)
    except ExpressionError as error:
        return error
    return None


def parse_formula(text: str) -> Node:
    """The tree of an expression over inputs, ``stage.port``, params and axes. Raises ExpressionError."""
    tree = parse_dotted(text)
    named = next((part for part in walk(tree) if isinstance(part, Name)), None)
    if named is None:
        help = "name an input or stage.port; a stage's numbers stand under its with:"
        raise ExpressionError("the expression is only a number", tree.start, tree.end, help)
    if isinstance(tree, Name):
        raise ExpressionError(f"this is {tree.id} itself", tree.start, tree.end, f"write {tree.id}")
    if is_comparison(tree):
        raise ExpressionError("an edge takes numbers, this is a comparison", tree.start, tree.end, TO_NUMBER)
    return tree


def parse_dotted(text: str) -> Node:
    try:
        return parse_expression(text, dotted=True)
    except ExpressionError as error:
        at_dot = text[error.start : error.end] == "."
        error.help = "a stage's output is written stage.port, as cumsum.y" if at_dot else one_line_help(error)
        raise


def one_line_help(error: ExpressionError) -> str | None:
    """An edge holds one line."""
    return None if error.help == "split it into several lines" else error.help


TO_NUMBER = "turn it into a number by where(condition, 1, 0)"


def is_comparison(node: Node) -> bool:
    """Whether a part is a comparison and no number. Raises ExpressionError for what is not elementwise in it."""
    match node:
        case Number() | Name():
            return False
        case Unary(operand=operand):
            number(operand, "'-'")
            return False
        case Binary(op="&" | "|" as op, left=left, right=right):
            for part in (left, right):
                if not is_comparison(part):
                    help = "put each comparison in parentheses: (a < b) & (c < d)"
                    raise ExpressionError(f"{op!r} joins comparisons, this is a number", part.start, part.end, help)
            return True
        case Binary(op=op, left=left, right=right):
            refuse_operator(node)
            number(left, f"{op!r}"), number(right, f"{op!r}")
            return op in COMPARISONS
        case Call():
            check_call(node)
            return False
    raise TypeError(f"not a node: {node!r}")


def number(node: Node, what: str) -> None:
    if is_comparison(node):
        raise ExpressionError(f"{what} takes numbers, this is a comparison", node.start, node.end, TO_NUMBER)


def refuse_operator(node: Binary) -> None:
    if node.op == "@":
        help = "products of matrices are the work of stages: `chunkwise list` names them"
        message = "'@' goes over an axis, and an edge's expression is elementwise"
        raise ExpressionError(message, node.start, node.end, help)
    if node.op in ("//", "%"):
        raise ExpressionError(f"{node.op!r} is for numbers, and this has tensors", node.start, node.end)
    if node.op == "**" and any(isinstance(part, (Name, Call)) for part in walk(node.right)):
        help = "write exp(y * log(x)) for x > 0"
        raise ExpressionError("the exponent is a number that the file writes", node.right.start, node.right.end, help)
    if node.op == "**":
        check_exponent(evaluate_number(node.right, {}), node.right)


def check_call(node: Call) -> None:
    name = node.function
    if name.id in DENSE:
        raise ExpressionError(f"{name.id!r} belongs to the dense form", name.start, name.end)
    if name.id not in FUNCTIONS:
        known = [each for each, function in FUNCTIONS.items() if function.rule in ("map", "select")]
        raise ExpressionError(f"no function {name.id!r}", name.start, name.end, hint(name.id, known))
    function = FUNCTIONS[name.id]
    if function.rule in ("reduce", "along"):
        help = STAGE_FOR.get(name.id, "a stage does that: `chunkwise list` names them")
        message = f"{name.id} goes over an axis, and an edge's expression is elementwise"
        raise ExpressionError(message, node.start, node.end, help)
    if function.rule not in ("map", "select"):
        message = f"{name.id} changes the axes, and an edge's expression is elementwise"
        raise ExpressionError(message, node.start, node.end, "operands meet by the names of their axes")
    if node.axis is not None:
        raise ExpressionError(f"{name.id} takes no axis=", node.axis.start, node.axis.end)
    if len(node.args) != function.arity:
        plural = "" if function.arity == 1 else "s"
        message = f"{name.id} takes {function.arity} argument{plural}, got {len(node.args)}"
        raise ExpressionError(message, node.start, node.end)
    numbers = node.args
    if function.rule == "select":
        if not is_comparison(node.args[0]):
            raise ExpressionError("where needs a comparison first", node.args[0].start, node.args[0].end)
        numbers = node.args[1:]
    for arg in numbers:
        number(arg, name.id)
