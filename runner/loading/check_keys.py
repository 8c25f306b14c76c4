"""Whether a tree of nodes has the keys, kinds and texts that spec_keys.py describes. Finds everything in one run."""

import math
import re
from collections.abc import Collection, Iterable

from ..diagnostics.codes import EMPTY, KEYS_CLASH, MISSING_KEY, UNKNOWN_KEY, WRONG_KIND
from ..diagnostics.errors import Diagnostic, Note, Replace, quoted
from ..diagnostics.hints import meant, nearest
from ..diagnostics.marks import Mark
from .spec_keys import NAME, Flag, Key, Kind, Lines, Many, Named, Removable, Rule, Table
from .yaml_nodes import List, Map, Node, Scalar


def check(node: Node, kind: Kind, path: str, owner: Mark) -> list[Diagnostic]:
    """What is wrong with node. path: where it stands, as ``inputs.q``. owner: the key that holds it."""
    if isinstance(kind, Removable) and (removed(node) or not nothing(node)):
        return [] if removed(node) else check(node, kind.item, path, owner)
    if isinstance(kind, Lines):
        return check(node, by_line(kind) if isinstance(node, Map) else Many(kind.item), path, owner)
    if isinstance(kind, Table) and kind.short and isinstance(node, Scalar) and not nothing(node):
        return check(node, kind.keys[kind.short].kind, path, owner)
    if isinstance(kind, Many) and kind.single and not isinstance(node, List):
        return check(node, kind.item, path, owner)
    if nothing(node):
        return [Diagnostic(EMPTY, f"{path or 'the file'} has no value", owner, help=f"{belongs(kind)} belongs here")]
    if not isinstance(node, {Rule: Scalar, Flag: Scalar, Many: List, Table: Map, Named: Map}[type(kind)]):
        message = f"{path or 'the file'} is {described(node)}, and {belongs(kind)} belongs here"
        return [Diagnostic(WRONG_KIND, message, start_of(node), help=kind_help(node, kind))]
    return {Rule: check_scalar, Flag: check_flag, Many: check_list, Table: check_table, Named: check_named}[type(kind)](
        node, kind, path, owner
    )


def kind_help(node: Node, kind: Kind) -> str | None:
    """How the kind that belongs here is written, where another stands."""
    if isinstance(node, List) and isinstance(kind, Table) and kind.short:
        parts = " ".join(item.text for item in node.items if isinstance(item, Scalar))
        return f"without brackets and commas: {parts}" if parts else None
    if isinstance(kind, Table):
        return f"its keys are {', '.join(kind.keys)}, each as key: value"
    if isinstance(kind, Named):
        return "entries of the form name: value"
    return "one item a line after -" if isinstance(kind, Many) else None


def check_scalar(node: Scalar, rule: Rule, path: str, owner: Mark) -> list[Diagnostic]:
    is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if is_number and rule.numbers:
        return number_errors(node, rule, path)
    if not isinstance(node.value, str) and not (is_number and rule.code != WRONG_KIND) or not rule.texts:
        help = "quotes make it a text" if rule.texts and not rule.exact else None
        message = f"{path} is {described(node)}, and {rule.words} belongs here"
        return [Diagnostic(WRONG_KIND, message, node.mark, help=help)]
    return text_errors(node, rule, path)


def number_errors(node: Scalar, rule: Rule, path: str) -> list[Diagnostic]:
    whole = isinstance(node.value, int) and 0 < node.value <= (rule.most or node.value)
    if math.isfinite(node.value) and (whole or not rule.whole):
        return []
    return [Diagnostic(WRONG_KIND, f"{path} is {node.text}, and {rule.words} belongs here", node.mark)]


def text_errors(node: Scalar, rule: Rule, path: str) -> list[Diagnostic]:
    text = node.text
    if rule.exact and not node.verbatim:
        help = "write it on one line, without escapes and without | or >"
        return [Diagnostic(rule.code, f"{path} is not written as it reads", node.mark, help=help)]
    if rule.choices is not None and text not in rule.choices:
        near = nearest(text, rule.choices)
        help = f"did you mean {near}?" if near else "one of " + ", ".join(rule.choices)
        message, repair = f"{path}: {quoted(text)} is not {rule.words}", slip(node, rule.choices)
        return [Diagnostic(rule.code, message, node.mark, help=help, repair=repair)]
    fits = re.fullmatch(rule.pattern, text) if rule.pattern else text.strip()
    if not fits or text in rule.refused or (rule.parse and rule.parse(text) is None):
        return [Diagnostic(rule.code, f"{path}: {quoted(text)} is not {rule.words}", node.mark, help=rule_help(rule))]
    if rule.problem and (error := rule.problem(text)):
        mark = node.mark.within(error.start, error.end)
        return [Diagnostic(rule.code, f"{path}: {error.message}", mark, help=error.help or rule_help(rule))]
    return []


def rule_help(rule: Rule) -> str | None:
    return rule.help or ("as " + ", or ".join(rule.examples) if rule.examples else None)


def check_flag(node: Scalar, flag: Flag, path: str, owner: Mark) -> list[Diagnostic]:
    if isinstance(node.value, bool):
        return []
    return [Diagnostic(WRONG_KIND, f"{path} is {described(node)}, and true or false belongs here", node.mark)]


def check_list(node: List, many: Many, path: str, owner: Mark) -> list[Diagnostic]:
    if not node.items:
        return [Diagnostic(EMPTY, f"{path} is empty", start_of(node), help=f"{many.item.words} belongs here")]
    return [
        error
        for number, item in enumerate(node.items, 1)
        for error in check(item, many.item, f"{path}[{number}]", item.mark)
    ]


def check_named(node: Map, named: Named, path: str, owner: Mark) -> list[Diagnostic]:
    if named.filled and not node.entries:
        return [Diagnostic(EMPTY, f"{path} is empty", start_of(node))]
    errors = []
    for name, entry in node.entries.items():
        errors += text_errors(entry.key, named.key or NAME, path)
        errors += check(entry.value, named.item, f"{path}.{name[:64]}", entry.key.mark)
    return errors


def check_table(node: Map, table: Table, path: str, owner: Mark) -> list[Diagnostic]:
    errors, unknown = [], []
    for name, entry in node.entries.items():
        if name in table.keys:
            errors += check(entry.value, table.keys[name].kind, joined(path, name), entry.key.mark)
        else:
            unknown.append(unknown_key(entry.key, table, path, node.entries))
    # a slip of the pen is one mistake, not a key too many and another one missing
    there = {*node.entries, *(each.repair.new for each in unknown if each.repair)}
    errors += unknown + [
        Diagnostic(MISSING_KEY, f"{path or 'the file'} has no key '{name}'", owner, help=key_help(name, key))
        for name, key in table.keys.items()
        if key.required and name not in there
    ]
    return errors + choice_errors(node, table, path, owner) + need_errors(node, table, path)


def key_help(name: str, key: Key) -> str:
    """What to write where there is one way only, else what the key is for."""
    choices = key.kind.choices if isinstance(key.kind, Rule) else None
    return f"add {name}: {next(iter(choices))}" if choices and len(choices) == 1 else f"{name}: {key.doc}"


def unknown_key(key: Scalar, table: Table, path: str, beside: Collection[str]) -> Diagnostic:
    """beside: the keys of the same mapping, which it cannot be meant for."""
    near = nearest(key.text, table.keys)
    repair = slip(key, [name for name in table.keys if name not in beside])
    help = f"did you mean {near}?" if near else "the keys here are " + ", ".join(table.keys)
    message = f"unknown key {quoted(key.text)}" + (f" in {path}" if path else "")
    return Diagnostic(UNKNOWN_KEY, message, key.mark, help=help, repair=repair)


def slip(node: Scalar, names: Iterable[str]) -> Replace | None:
    """The repair of a misspelt text that can mean one of names alone."""
    right = meant(node.text, names)
    return Replace(node.mark, node.text, right) if right and node.verbatim else None


def choice_errors(node: Map, table: Table, path: str, owner: Mark) -> list[Diagnostic]:
    """Whether exactly one of one_of is there."""
    there = [entry.key for name, entry in node.entries.items() if name in table.one_of]
    if table.one_of and not there:
        help = key_help(table.one_of[0], table.keys[table.one_of[0]])
        return [Diagnostic(MISSING_KEY, f"{path} has neither {' nor '.join(table.one_of)}", owner, help=help)]
    if len(there) > 1:
        first, second = there[:2]
        note = Note(f"{first.text} is here", first.mark)
        message = f"{path} has both {first.text} and {second.text}"
        return [Diagnostic(KEYS_CLASH, message, second.mark, (note,), "keep one of them")]
    return []


def need_errors(node: Map, table: Table, path: str) -> list[Diagnostic]:
    """Whether each key that needs a flag has it."""
    errors = []
    for name, flag in table.needs.items():
        beside = node.entries.get(flag)
        set_so = beside is not None and isinstance(beside.value, Scalar) and beside.value.value is True
        if name in node.entries and not set_so:
            message = f"{path} has {name} and is not {flag}"
            errors.append(Diagnostic(MISSING_KEY, message, node.entries[name].key.mark, help=f"add {flag}: true"))
    return errors


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def removed(node: Node) -> bool:
    """Whether null is written there. A value that was only forgotten removes nothing."""
    return nothing(node) and node.text != ""


def by_line(lines: Lines) -> Named:
    return Named(Removable(Many(lines.item, single=True)), filled=True, key=lines.item)


def start_of(node: Node) -> Mark:
    """The node's mark; of a list or mapping that spans lines, its first character."""
    return node.mark if node.mark.line == node.mark.end_line else first_character(node)


def first_character(node: Node) -> Mark:
    mark = node.mark
    return Mark(mark.file, mark.line, mark.column, mark.line, mark.column + 1, mark.text)


def belongs(kind: Kind) -> str:
    match kind:
        case Rule():
            return kind.words
        case Flag():
            return "true or false"
        case Removable():
            return f"{belongs(kind.item).removesuffix(',')}, or null,"
        case Many(single=True):
            return f"{kind.item.words}, or a list,"
        case Many() | Lines():
            return "a list"
        case Table(short=None) | Named():
            return "a mapping"
        case Table():
            return f"a mapping, or {belongs(kind.keys[kind.short].kind)},"


def described(node: Node) -> str:
    if isinstance(node, Map):
        return "a mapping"
    if isinstance(node, List):
        return "a list"
    if isinstance(node.value, bool):
        return node.text
    return f"the number {node.text}" if isinstance(node.value, int | float) else f"the text {quoted(node.text)}"
