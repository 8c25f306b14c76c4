"""How an error looks: as text, in colour, as JSON; and what is said of each code."""

import re

import pytest

from chunkwise.runner.diagnostics.codes import CODES, UNIT, exit_code
from chunkwise.runner.diagnostics.errors import ChunkwiseError, Diagnostic, Note, by_place, quoted
from chunkwise.runner.diagnostics.explanations import EXPLANATIONS, explain
from chunkwise.runner.diagnostics.hints import nearest
from chunkwise.runner.diagnostics.marks import Mark
from chunkwise.runner.diagnostics.render_errors import WIDTH, as_json, render


def mark(text, part, file="a.yaml"):
    """The mark of the first place of part in text."""
    before, line = text[: text.index(part)].split("\n")[-1], text[: text.index(part)].count("\n") + 1
    return Mark(file, line, len(before) + 1, line, len(before) + len(part) + 1, text)


TEXT = "inputs:\n  g: B T HV\nstages: {out: {use: chunk_o, in: {g: raw}}}\n"
FULL = Diagnostic(
    UNIT,
    "unit mismatch at out.g",
    mark(TEXT, "raw"),
    notes=(Note("raw is declared here", mark(TEXT, "B T HV")), Note("converted by chunk_local_cumsum")),
    help="insert a stage",
    label="expected log2, got ln",
)


def test_everything_that_an_error_can_hold():
    assert (
        render(FULL)
        == """\
error[CW304]: unit mismatch at out.g
 --> a.yaml:3:38
  |
3 | stages: {out: {use: chunk_o, in: {g: raw}}}
  |                                      ^^^ expected log2, got ln
note: raw is declared here
 --> a.yaml:2:6
  |
2 |   g: B T HV
  |      ^^^^^^
note: converted by chunk_local_cumsum
help: insert a stage"""
    )


def test_colour_changes_nothing_but_colour():
    coloured = render(FULL, colour=True)
    assert coloured.startswith("\x1b[1;31merror[CW304]\x1b[0m\x1b[1m: unit mismatch")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(FULL)


def test_a_warning_says_so():
    text = render(Diagnostic(UNIT, "hm", warning=True))
    assert text == "warning[CW304]: hm"


def test_json():
    assert as_json(FULL) == {
        "code": "CW304",
        "severity": "error",
        "message": "unit mismatch at out.g: expected log2, got ln",
        "file": "a.yaml",
        "line": 3,
        "column": 38,
        "end_line": 3,
        "end_column": 41,
        "help": "insert a stage",
        "notes": [
            {
                "message": "raw is declared here",
                "file": "a.yaml",
                "line": 2,
                "column": 6,
                "end_line": 2,
                "end_column": 12,
            },
            {
                "message": "converted by chunk_local_cumsum",
                "file": None,
                "line": None,
                "column": None,
                "end_line": None,
                "end_column": None,
            },
        ],
    }


def test_without_a_place():
    assert render(Diagnostic("CW101", "no such file: x", help="look")) == "error[CW101]: no such file: x\nhelp: look"
    assert as_json(Diagnostic("CW101", "no such file: x"))["line"] is None


def test_a_place_without_its_text():
    assert render(Diagnostic("CW501", "broken", Mark("s.py", 7, 3, 7, 4))) == "error[CW501]: broken\n --> s.py:7:3"


@pytest.mark.parametrize(
    "line, caret",
    [
        ("a: X", "   ^"),
        ("\ta: X", "       ^"),
        ("漢字: X", "      ^"),
        ("e\u0301: X", "   ^"),
        ("\U0001f600: X", "    ^"),
        ("a\x07: X", "    ^"),
    ],
    ids=["plain", "tab", "wide", "combining", "emoji", "control"],
)
def test_the_caret_stands_below_the_character(line, caret):
    lines = render(Diagnostic("CW203", "m", mark(line, "X"))).split("\n")
    assert lines[-1] == "  | " + caret
    assert "\x07" not in lines[-2]


def cells_before(text):
    return len(text) - len(text.lstrip(" "))


@pytest.mark.parametrize("before, after", [(0, 300), (20, 300), (150, 150), (300, 20), (300, 0), (80, 10)])
def test_a_long_line_is_cut_around_the_place(before, after):
    line = "a" * before + "XYZ" + "b" * after
    shown, caret = render(Diagnostic("CW203", "m", mark(line, "XYZ"))).split("\n")[-2:]
    shown, caret = shown.removeprefix("1 | "), caret.removeprefix("  | ")
    assert shown[cells_before(caret) :].startswith("XYZ") and caret.strip() == "^^^"
    assert len(shown) <= WIDTH + 2 * len("...")
    assert shown.startswith("...") == (not line.startswith(shown.strip(".")))
    assert shown.endswith("...") == (not line.endswith(shown.strip(".")))


def test_a_long_mark_ends_with_the_window():
    line = "x: " + "y" * 400
    caret = render(Diagnostic("CW203", "m", mark(line, "y" * 400))).split("\n")[-1].removeprefix("  | ")
    assert set(caret.strip()) == {"^"} and len(caret) <= WIDTH + 3


def test_a_mark_over_lines_is_underlined_to_the_end_of_its_first():
    diagnostic = Diagnostic("CW203", "m", Mark("a.yaml", 1, 4, 3, 2, "a: [b,\n c,\n d]"))
    assert render(diagnostic).endswith("1 | a: [b,\n  |    ^^^")


def test_line_numbers_of_two_digits_keep_the_gutter():
    text = "\n" * 11 + "a: b"
    assert render(Diagnostic("CW203", "m", mark(text, "b"))) == (
        "error[CW203]: m\n  --> a.yaml:12:4\n   |\n12 | a: b\n   |    ^"
    )


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_line_breaks_of_every_system(line_break):
    text = f"a: 1{line_break}b: 2{line_break}"
    place = Mark("a.yaml", 2, 4, 2, 5, text)
    assert render(Diagnostic("CW203", "m", place)).endswith("2 | b: 2\n  |    ^")


def test_a_place_past_the_end_of_its_line():
    assert render(Diagnostic("CW206", "m", Mark("a.yaml", 1, 3, 1, 3, "a:"))).endswith("1 | a:\n  |   ^")


def test_a_note_on_a_long_line_gives_its_place_alone():
    long = mark("x" * WIDTH + " Y", "Y")
    assert render(Diagnostic("CW301", "m", notes=(Note("first here", long),))).split("\n")[-1] == (
        f"note: first here (a.yaml:1:{WIDTH + 2})"
    )


def test_files_below_the_current_directory_are_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    below = Diagnostic("CW203", "m", Mark(str(tmp_path / "d" / "a.yaml"), 1, 1, 1, 2))
    above = Diagnostic("CW203", "m", Mark(str(tmp_path.parent / "a.yaml"), 1, 1, 1, 2))
    assert render(below).endswith("--> d/a.yaml:1:1") and as_json(below)["file"] == "d/a.yaml"
    assert render(above).endswith(f"--> {tmp_path.parent}/a.yaml:1:1")


def test_nothing_of_a_file_reaches_the_terminal_as_a_command():
    evil = "\x1b[2J\u202e\x00"
    diagnostic = Diagnostic("CW203", evil, Mark(evil, 1, 1, 1, 2, evil), (Note(evil),), evil, evil)
    assert not set(evil) - {"[", "2", "J"} & set(render(diagnostic))
    assert "\\x1b[2J\\u202e\\x00" in render(diagnostic)


def test_every_error_of_an_exception_is_in_its_text():
    error = ChunkwiseError(Diagnostic("CW101", "one"), Diagnostic("CW102", "two"))
    assert str(error) == "error[CW101]: one\n\nerror[CW102]: two"


def test_sorted_by_place_and_once():
    a, b = (Diagnostic("CW203", "m", Mark("a.yaml", line, 1, line, 2)) for line in (1, 2))
    c = Diagnostic("CW101", "no place")
    assert by_place([b, a, b, c]) == [c, a, b]


def test_long_values_are_cut_in_messages():
    assert quoted("x" * 500) == "'" + "x" * 60 + "...'"
    assert quoted(7) == "'7'"


@pytest.mark.parametrize(
    "name, expected",
    [
        ("scann", "scan"),
        ("KKT", "kkt"),
        ("chunk_local_cumsun", "chunk_local_cumsum"),
        ("zzz", None),
        ("x" * 10**6, None),
    ],
)
def test_nearest_name(name, expected):
    assert nearest(name, ["scan", "kkt", "chunk_local_cumsum"]) == expected


def test_every_code_is_explained():
    assert list(EXPLANATIONS) == list(CODES) == sorted(CODES)
    for code, text in EXPLANATIONS.items():
        assert text.why and text.example and text.fix
        assert explain(code).startswith(f"{code}: {CODES[code].title} (exit code {CODES[code].exit})\n\n")


WARNINGS = ("CW241", "CW242", "CW243", "CW244")
"""Codes that are never an error's."""


def test_exit_codes_go_with_their_range():
    assert {code[2]: set() for code in CODES}.keys() == set("123456789")
    for code, entry in CODES.items():
        assert entry.exit == (0 if code in WARNINGS else {"7": 3, "8": 1, "9": 4}.get(code[2], 2))
    assert (exit_code([]), exit_code(["CW801"]), exit_code(["CW801", "CW304"]), exit_code(["CW901", "CW101"])) == (
        0,
        1,
        2,
        4,
    )
