"""YAML 1.2 text to a tree: values, places, limits."""

import math
import time

import pytest

from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.loading.decode_text import MAX_BYTES
from chunkwise.runner.loading.yaml_nodes import List, Map, Scalar
from chunkwise.runner.loading.yaml_scalars import resolve
from chunkwise.runner.loading.yaml_text import MAX_DEPTH, MAX_NODES, parse_tree


def tree(text):
    root, errors = parse_tree(text, "a.yaml")
    assert errors == []
    return root


def refused(text):
    """(code, line, column) of every error."""
    try:
        errors = parse_tree(text, "a.yaml")[1]
    except ChunkwiseError as error:
        errors = error.diagnostics
    return [(each.code, each.mark and each.mark.line, each.mark and each.mark.column) for each in errors]


@pytest.mark.parametrize(
    "text, value",
    [
        ("1e-3", 0.001), ("1.", 1.0), (".5", 0.5), ("-2.5E+2", -250.0), ("0017", 17), ("0o17", 15), ("0x1F", 31),
        ("-7", -7), ("+7", 7), ("on", "on"), ("yes", "yes"), ("n", "n"), ("12:30:45", "12:30:45"), ("1_000", "1_000"),
        ("true", True), ("False", False), ("TRUE", True), ("tRue", "tRue"), ("~", None), ("null", None), ("", None),
        ("nil", "nil"), (".inf", math.inf), ("-.Inf", -math.inf), ("0..1", "0..1"), ("2026-11-29", "2026-11-29"),
        ("0b1", "0b1"), ("08", 8), ("-0o7", "-0o7"), ("1e", "1e"), ("=", "="), ("١", "١"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_the_core_schema(text, value):
    got = tree(f"a: {text}\n").entries["a"].value.value
    assert got == value and type(got) is type(value)


def test_not_a_number():
    assert math.isnan(resolve(".nan"))
    assert resolve("nan") == "nan"


@pytest.mark.parametrize("quoted", ['"1"', "'1'", "|-\n  1", ">-\n  1"])
def test_quoted_and_block_scalars_are_texts(quoted):
    assert tree(f"a: {quoted}\n").entries["a"].value.value == "1"


def test_keys_are_texts():
    assert list(tree("1: a\ntrue: b\n~: c\non: d\n").entries) == ["1", "true", "~", "on"]


TEXT = 'ключ: \'a b\'\nmap: {x: "q", y: [1, zwölf]} # note\nblock:\n  - &n name\n  - *n\n  - "\\x41"\n  - |\n    t\n'


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), "\ufeff" + TEXT], ids=["lf", "crlf", "bom"])
def test_places_count_characters(text):
    root = tree(text)
    scalars = list(leaves(root))
    assert [(each.text, each.mark.line, each.mark.column, each.mark.end_column, each.verbatim) for each in scalars] == [
        ("ключ", 1, 1, 5, True),
        ("a b", 1, 8, 11, True),
        ("map", 2, 1, 4, True),
        ("x", 2, 7, 8, True),
        ("q", 2, 11, 12, True),
        ("y", 2, 15, 16, True),
        ("1", 2, 19, 20, True),
        ("zwölf", 2, 22, 27, True),
        ("block", 3, 1, 6, True),
        ("name", 4, 8, 12, True),
        ("name", 4, 8, 12, True),
        ("A", 6, 5, 11, False),
        ("t\n", 7, 5, 1, False),
    ]
    assert scalars[9] is scalars[10]
    lines = text.removeprefix("\ufeff").splitlines()
    for each in scalars:
        if each.verbatim:
            assert lines[each.mark.line - 1][each.mark.column - 1 : each.mark.end_column - 1] == each.text
    assert (root.entries["map"].value.mark.column, root.entries["map"].value.mark.end_column) == (6, 29)


def leaves(node):
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, List):
        for item in node.items:
            yield from leaves(item)
    else:
        for entry in node.entries.values():
            yield entry.key
            yield from leaves(entry.value)


def test_part_of_a_quoted_scalar():
    law = tree('k: "S = outer(k, v)"').entries["k"].value
    part = law.mark.within(4, 9)
    assert (part.line, part.column, part.end_column) == (1, 9, 14)


def test_an_anchor_can_be_set_again():
    root = tree("[&a 1, *a, &a 2, *a]")
    assert [each.value for each in root.items] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", [("CW206", 1, 1)]),
        (b"# only this\n", [("CW206", 1, 1)]),
        (b"a: b\nc: \xff\n", [("CW102", 2, 4)]),
        (b"\xef\xbb\xbfa: \xc3(\n", [("CW102", 1, 4)]),
        ("ä: b\r\nü: \0\r\n".encode(), [("CW102", 2, 4)]),
        (b"a: b\rc: \x1b[31m", [("CW102", 2, 4)]),
        ("a: x\u2028y".encode(), [("CW102", 1, 5)]),
        ("a: \u202ex".encode(), [("CW102", 1, 4)]),
        ("a: \ud800", [("CW102", 1, 4)]),
        ("a: b".encode("utf-16"), [("CW102", None, None)]),
        (b"a:\tb\n", [("CW103", 1, 3)]),
        (b"a: b  # tab\there\nc: 'd\te'\n", []),
        (b"a: [b\n", [("CW103", 2, 1)]),
        (b"a: b\n---\nc: d\n", [("CW103", 2, 1)]),
        (b"---\na: b\n...\n", []),
        (b"a: *b\n", [("CW103", 1, 4)]),
        (b"a: &b {c: *b}\n", [("CW103", 1, 11)]),
        (b'a: "\\uFFFFFF"\n', [("CW102", 1, 4)]),
        (b'a: "\\UFFFFFFFF"\n', [("CW103", 1, 7)]),
        (b"a: 1\na: 2\n", [("CW104", 2, 1)]),
        (b"a: {b: 1, 'b': 2}\n", [("CW104", 1, 12)]),
        (b"a: {<<: {b: 1}}\n", [("CW105", 1, 5)]),
        (b"a: !!python/name:os.system\n", [("CW105", 1, 4)]),
        (b"!!set {a}\n", [("CW105", 1, 1), ("CW103", 1, 8)]),
        (b"{a: f(b, c), d}\n", [("CW103", 1, 10), ("CW103", 1, 14)]),
        (b"{a: , b: }\n", []),
        (b"[f(a, b, c), d(e, f)]\n", [("CW103", 1, 2), ("CW103", 1, 14)]),
        (b"- f(a, b)\n- (\n- c\n", []),
        (b"? {a: b}\n: c\n", [("CW203", 1, 3)]),
        (b"a: " + b"9" * 41, [("CW106", 1, 4)]),
    ],
)
def test_refused_texts(data, expected):
    assert sorted(refused(data), key=str) == sorted(expected, key=str)


def test_a_call_that_commas_cut_is_put_together():
    root = parse_tree("{a: f(b, c), d: [g(1, 2, h(3)), 4]}", "a.yaml")[0]
    assert root.entries["a"].value.text == "f(b, c)"
    assert [each.text for each in root.entries["d"].value.items] == ["g(1, 2, h(3))", "4"]
    mark = root.entries["d"].value.items[0].mark
    assert (mark.column, mark.end_column) == (18, 31)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 100_000,
        "{a: " * 50_000,
        "? " * 100_000,
        "- x\n" * 60_000,
        "[" + "x," * 100_000,
        "a: &a0 [x, x, x]\n" + "".join(f"b{i}: &a{i + 1} [*a{i}, *a{i}, *a{i}]\n" for i in range(200)),
        "a: &a {" + ",".join(f"k{i}: x" for i in range(400)) + "}\nb: [" + "*a," * 400 + "]",
    ],
    ids=["brackets", "dashes", "braces", "questions", "list", "flow list", "alias bomb", "wide alias bomb"],
)
def test_hostile_files_end_soon(text):
    start = time.perf_counter()
    assert [code for code, _, _ in refused(text)] == ["CW106"]
    assert time.perf_counter() - start < 5


def test_a_thousand_errors_end_the_reading():
    assert refused("a: 1\n" * 1000)[99:] == [("CW104", 101, 1), ("CW106", None, None)]


def test_the_limits_are_where_they_are_said_to_be():
    assert refused("[" * MAX_DEPTH + "]" * MAX_DEPTH) == []
    assert refused("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) == [("CW106", 1, MAX_DEPTH + 1)]
    assert refused("- x\n" * (MAX_NODES - 1)) == []
    assert refused("- x\n" * MAX_NODES) == [("CW106", MAX_NODES, 3)]
    assert refused("#" * MAX_BYTES) == [("CW206", 1, 1)]
    assert refused("#" * (MAX_BYTES + 1)) == [("CW106", None, None)]


def test_an_empty_root_mapping_is_a_map():
    assert isinstance(tree("{}"), Map)
