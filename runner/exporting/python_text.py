"""Python source, laid out as ``ruff format`` lays it out: what export.py writes needs no formatter."""

import keyword
import textwrap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ..expression import is_condition, parse_expression
from ..expression.tree import Binary, Call, Name, Node, Number, Unary, walk

WIDTH = 120
INDENT = "    "
FUNCTIONS = {
    "min": "min", "max": "max", "abs": "abs", "sqrt": "math.sqrt", "exp": "math.exp", "log": "math.log",
    "log2": "math.log2", "floor": "math.floor", "ceil": "math.ceil",
}  # fmt: skip
_LEVELS = ({"==", "!=", "<", "<=", ">", ">="}, {"|"}, {"&"}, {"+", "-"}, {"*", "/", "//", "%"})


@dataclass(frozen=True)
class Items:
    """A list or dict among the arguments of a call."""

    brackets: str
    items: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.brackets[0]}{', '.join(self.items)}{self.brackets[1]}"


def call(head: str, arguments: Iterable[str | Items], tail: str, indent: str) -> list[str]:
    """``head`` ends with the opening bracket of a call or def, ``tail`` begins with the closing one."""
    arguments = list(arguments)
    shown = ", ".join(map(str, arguments))
    line, inside = f"{indent}{head}{shown}{tail}", f"{indent}{INDENT}{shown}"
    if len(line) <= WIDTH or not arguments:
        return [line]
    body = [inside]
    if len(inside) > WIDTH:
        body = [line for each in arguments for line in argument(each, indent + INDENT)]
    return [f"{indent}{head}", *body, f"{indent}{tail}"]


def argument(text: str | Items, indent: str) -> list[str]:
    """An argument on lines of its own."""
    line = f"{indent}{text},"
    if len(line) <= WIDTH or isinstance(text, str):
        return [line]
    opening, closing = text.brackets
    return [f"{indent}{opening}", *(f"{indent}{INDENT}{each}," for each in text.items), f"{indent}{closing},"]


def names_list(head: str, names: Iterable[str], tail: str, indent: str) -> list[str]:
    """Names with commas between after del or return, or left of ``=``; in parentheses where they take more lines."""
    names = list(names)
    line = f"{indent}{head}{', '.join(names)}{tail}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{indent}{head}(", *(f"{indent}{INDENT}{each}," for each in names), f"{indent}){tail}"]


def import_from(package: str, names: Iterable[str]) -> list[str]:
    names = sorted(set(names))
    line = f"from {package} import {', '.join(names)}" if package else f"import {', '.join(names)}"
    if len(line) <= WIDTH:
        return [line]
    return [f"from {package} import (", *(f"{INDENT}{each}," for each in names), ")"]


def comment(text: str, indent: str) -> list[str]:
    start = f"{indent}# "
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False)


def docstring(paragraphs: Iterable[str], indent: str) -> list[str]:
    """A docstring of paragraphs; those that begin with a space stand one below the other."""
    lines = []
    for paragraph in paragraphs:
        paragraph = paragraph.replace("\\", "\\\\").replace('"""', "'''")
        further = INDENT * 2 if paragraph.startswith(" ") else ""
        wrapped = textwrap.wrap(paragraph, WIDTH - 4 - len(indent), subsequent_indent=further)
        lines += ["", *wrapped] if lines and not (paragraph.startswith(" ") and lines[-1].startswith(" ")) else wrapped
    lines = [f"{indent}{line}".rstrip() for line in lines]
    return [f'{indent}"""{lines[0].lstrip()}', *lines[1:], f'{indent}"""']


def expression(text: str | int | float, names: Mapping[str, str]) -> str:
    """An expression of a pipeline as Python; names: how each of its names is spoken there."""
    if not isinstance(text, str):
        return repr(text)
    tree = parse_expression(text)
    python = spoken(tree, names)[0]
    return f"float({python})" if any(map(many_bits, walk(tree))) and not is_condition(tree) else python


def many_bits(node: Node) -> bool:
    """A power of whole numbers that may be beyond 64 bits, which neither a kernel nor PyTorch takes."""
    power = isinstance(node, Binary) and node.op == "**" and isinstance(node.right, Number)
    return power and isinstance(node.right.value, int) and node.right.value > 4


def spoken(node: Node, names: Mapping[str, str]) -> tuple[str, int]:
    """(text, how tightly it binds: 0 loosest)."""
    tightest = len(_LEVELS) + 2
    match node:
        case Number(value=value):
            return repr(value), tightest
        case Name(id=name):
            return names.get(name, name), tightest
        case Unary(operand=operand):
            return f"-{within(operand, names, tightest)}", tightest - 2
        case Binary(op="**", left=left, right=right):
            gap = "" if plain(left) and plain(right) else " "
            return f"{within(left, names, tightest)}{gap}**{gap}{within(right, names, tightest - 2)}", tightest - 1
        case Binary(op=op, left=left, right=right):
            level = next(at for at, each in enumerate(_LEVELS) if op in each)
            return f"{within(left, names, level + (level == 0))} {op} {within(right, names, level + 1)}", level
        case Call(function=function, args=args):
            return called(function.id, args, names), tightest
    raise TypeError(f"not a node: {node!r}")


def called(function: str, args: tuple[Node, ...], names: Mapping[str, str]) -> str:
    """A function of the grammar; two of them are not Python's own."""
    tight = [within(each, names, len(_LEVELS) + 2) for each in args]
    if function == "ceil_div":
        return f"(-(-{tight[0]} // {tight[1]}))"
    if function == "is_power_of_two":
        return f"({tight[0]} >= 1 and {tight[0]} & ({tight[0]} - 1) == 0)"
    return f"{FUNCTIONS[function]}({', '.join(spoken(each, names)[0] for each in args)})"


def within(node: Node, names: Mapping[str, str], level: int) -> str:
    """In parentheses where it binds less tightly than its place asks for."""
    text, own = spoken(node, names)
    return text if own >= level else f"({text})"


def plain(node: Node) -> bool:
    """What a power stands beside without spaces."""
    return isinstance(node, (Number, Name)) or isinstance(node, Unary) and isinstance(node.operand, Number)


class Names:
    """Variable names in one scope, no two alike."""

    def __init__(self, taken: Collection[str]):
        self.taken, self.known = set(taken), {}

    def __call__(self, value: str, wish: str) -> str:
        """The variable of a value; wish: what to call it when it is new."""
        if value not in self.known:
            name = wish
            while name in self.taken or keyword.iskeyword(name):
                name += "_"
            self.taken.add(name)
            self.known[value] = name
        return self.known[value]
