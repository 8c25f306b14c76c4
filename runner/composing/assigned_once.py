"""A definition whose names each stand for one value: a name can then be replaced by what it stands for.

The marks and the text of the lines stay, so that everything is still quoted as it is written.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from ..definition import Definition
from ..expression import Binary, Call, Name, Node, Unary


def assigned_once(definition: Definition, inputs: Collection[str]) -> Definition:
    """A value that a later line of its name replaces, or that has the name of an input, gets a new name.

    States keep theirs, and so does a name with a line that may be dropped: which line gives it is not known here.
    """
    lines, before_step = (*definition.let, *definition.step), len(definition.let)
    last = {each.target.id: at for at, each in enumerate(lines)}
    kept = {*definition.states, *(each.target.id for each in lines if each.condition)}
    taken, now, renamed_lines, states = {*inputs, *last, *definition.states}, {}, [], definition.states
    for at, each in enumerate(lines):
        if at == before_step:
            states = {name: replace(start, value=renamed(start.value, now)) for name, start in states.items()}
        name, value = each.target.id, renamed(each.value, now)
        now.pop(name, None)
        if name not in kept and (at < last[name] or name in inputs):
            now[name] = free_name(name, taken)
            taken.add(now[name])
        target = replace(each.target, id=now.get(name, name))
        renamed_lines.append(replace(each, target=target, value=value))
    return replace(
        definition, states=states, let=tuple(renamed_lines[:before_step]), step=tuple(renamed_lines[before_step:])
    )


def ambiguous(definition: Definition, inputs: Collection[str]) -> set[str]:
    """Names that stand for more than one value all the same."""
    times = Counter(each.target.id for each in (*definition.let, *definition.step))
    return {name for name in times if times[name] > 1 or name in inputs}


def free_name(name: str, taken: Collection[str]) -> str:
    return next(new for number in range(2, len(taken) + 3) if (new := f"{name}_{number}") not in taken)


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The tree with other names, each at the place that it had."""
    match node:
        case Name(id=name):
            return replace(node, id=names.get(name, name))
        case Unary(operand=operand):
            return replace(node, operand=renamed(operand, names))
        case Binary(left=left, right=right):
            return replace(node, left=renamed(left, names), right=renamed(right, names))
        case Call(args=args):
            return replace(node, args=tuple(renamed(arg, names) for arg in args))
    return node
