"""``check --fix``: minimal edits that keep every other character, and a file that is written only when it checks."""

import json
import re
from pathlib import Path

import pytest

from chunkwise.runner.diagnostics.hints import edits, meant
from chunkwise.runner.fixing.repair_text import repair_text
from chunkwise.runner.loading.pipelines import FOLDER
from chunkwise.runner.main import main
from chunkwise.runner.stage_files.stage_library import find_stages

STAGES = find_stages()
SHIPPED = sorted(FOLDER.glob("*.yaml"))

HEAD = """\
schema: pipeline/v1
name: op
axes: {C: 16}
inputs:
  q: B T H K
  k: B T H K
  v: B T H V
  g: {shape: B T H, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
"""
FLOW = HEAD + """\
stages:
  # the scan over chunks
  scan: {use: chunk_h, in: {k: k, v: v, g: g}}   # raw

  # what comes out
  out:  {use: chunk_o, in: {q: q, k: k, v: v, h: scan.h, g: g}, with: {scale: 1}}
outputs: {o: out.o}
"""
BLOCK = HEAD + """\
stages:
    # the scan over chunks

    "scan":
        use: chunk_h
        in:
            k: k
            v: v
            g: 'g'      # raw
    out:
        use: chunk_o
        in: {q: q, k: k, v: v, h: scan.h, g: chunk_local_cumsum.y}
        with: {scale: 1}
    chunk_local_cumsum: {use: chunk_local_cumsum, in: {x: g}}
outputs:
    o: out.o
"""
CONVERTER = "    chunk_local_cumsum: {use: chunk_local_cumsum, in: {x: g}}\n"
OVER_LINES = """\
    chunk_local_cumsum:
        use: chunk_local_cumsum
        in:
            x: g
"""
CHUNK_O = "{use: chunk_o, in: {q: q, k: k, v: v, h: scan.h}, with: {scale: 1}}"
ON_ONE_LINE = HEAD + f"""\
stages: {{scan: {{use: chunk_h, in: {{k: k, v: v, g: g}}}}, out: {CHUNK_O}}}
outputs: {{o: out.o}}
"""
IN_BRACES = HEAD + f"""\
stages: {{
  'scan': {{use: chunk_h, in: {{k: k, v: v, g: g}}}},
  out: {CHUNK_O}
}}
outputs: {{o: out.o}}
"""
CHANNELS = """\
schema: pipeline/v1
name: op
axes: {C: 16}
inputs:
  q: B T H K
  k: B T H K
  g: {shape: B T H K, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
stages: {intra: {use: gla_intra, in: {q: q, k: k, b: g}, with: {scale: 1}}}
outputs: {kg: intra.kg}
"""


def changed(text, *changes):
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def repaired(text):
    """The text after every repair, which leaves no error."""
    found = repair_text(text, "op.yaml", STAGES)
    assert [str(each.message) for each in found.errors] == []
    return found.text


ENTRY = "  chunk_local_cumsum: {use: chunk_local_cumsum, in: {x: g}}\n"

CASES = {
    "an entry in flow style, above the comment of the first reader; the second reads it too": (
        FLOW,
        ("  # the scan", ENTRY + "  # the scan"),
        ("v: v, g: g}}", "v: v, g: chunk_local_cumsum.y}}"),
        ("h: scan.h, g: g}", "h: scan.h, g: chunk_local_cumsum.y}"),
    ),
    "an entry that is there already is read, in the quotes that stand there": (
        BLOCK,
        ("g: 'g'  ", "g: 'chunk_local_cumsum.y'  "),
    ),
    "an entry over lines, indented as its neighbour; a comment before an empty line stays where it is": (
        changed(BLOCK, ("g: chunk_local_cumsum.y}", "g: g}"), (CONVERTER, "")),
        ('    "scan":', OVER_LINES + '    "scan":'),
        ("g: 'g'  ", "g: 'chunk_local_cumsum.y'  "),
        ("h: scan.h, g: g}", "h: scan.h, g: chunk_local_cumsum.y}"),
    ),
    "an entry over lines with anchors": (
        changed(BLOCK, ('"scan":\n', "scan: &first\n"), ("in:\n            k: k", "in: &edges\n            k: k"),
                ("g: chunk_local_cumsum.y}", "g: g}"), (CONVERTER, "")),
        ("    scan:", OVER_LINES + "    scan:"),
        ("g: 'g'  ", "g: 'chunk_local_cumsum.y'  "),
        ("h: scan.h, g: g}", "h: scan.h, g: chunk_local_cumsum.y}"),
    ),
    "a name that is taken gets a number": (
        changed(FLOW, ("  q: B", "  chunk_local_cumsum: B"), ("q: q,", "q: chunk_local_cumsum,")),
        ("  # the scan", ENTRY.replace("chunk_local_cumsum:", "chunk_local_cumsum_2:") + "  # the scan"),
        ("v: v, g: g}}", "v: v, g: chunk_local_cumsum_2.y}}"),
        ("h: scan.h, g: g}", "h: scan.h, g: chunk_local_cumsum_2.y}"),
    ),
    "an edge that is an expression": (
        changed(FLOW, ("v: v, g: g}}", "v: v, g: 2 * g}}")),
        ("  # the scan", ENTRY.replace("x: g", "x: 2 * g") + "  # the scan"),
        ("v: v, g: 2 * g}}", "v: v, g: chunk_local_cumsum.y}}"),
        ("  # what comes", "  chunk_local_cumsum_2: {use: chunk_local_cumsum, in: {x: g}}\n  # what comes"),
        ("h: scan.h, g: g}", "h: scan.h, g: chunk_local_cumsum_2.y}"),
    ),
    "stages in braces on one line": (
        ON_ONE_LINE,
        ("{scan: {use", "{chunk_local_cumsum: {use: chunk_local_cumsum, in: {x: g}}, scan: {use"),
        ("g: g}", "g: chunk_local_cumsum.y}"),
    ),
    "stages in braces over lines": (
        IN_BRACES,
        ("  'scan'", ENTRY.replace("}}", "}},") + "  'scan'"),
        ("g: g}", "g: chunk_local_cumsum.y}"),
    ),
    "edges behind an anchor, read by two entries": (
        changed(FLOW, ("in: {k: k, v: v, g: g}}", "in: &edges {k: k, v: v, g: g}}"),
                ("  # what", "  again: {use: chunk_h, in: *edges}\n  # what"), ("h: scan.h, g: g}", "h: again.h}"),
                ("{o: out.o}", "{o: out.o, h: scan.h}")),
        ("  # the scan", ENTRY + "  # the scan"),
        ("v: v, g: g}", "v: v, g: chunk_local_cumsum.y}"),
    ),
    "the gate of every channel takes the sum of every channel": (
        CHANNELS,
        ("{intra: {", "{chunk_local_cumsum_k: {use: chunk_local_cumsum_k, in: {x: g}}, intra: {"),
        ("b: g}", "b: chunk_local_cumsum_k.y}"),
    ),
    "keys, stages, ports, sources, parameters and units that are misspelt: errors in three phases": (
        changed(FLOW, ("dtype: f32", "dytpe: f32"), ("use: chunk_h", "use: chunk_hh"), ("q: q, k", "Q: q, k"),
                ("h: scan.h", "h: scn.h"), ("scale: 1", "sclae: 1"), ("log_decay/ln/token", "log_decay/ln/tokn")),
        ("dytpe: f32", "dtype: f32"), ("use: chunk_hh", "use: chunk_h"), ("Q: q, k", "q: q, k"),
        ("h: scn.h", "h: scan.h"), ("sclae: 1", "scale: 1"), ("log_decay/ln/tokn", "log_decay/ln/token"),
        ("  # what", ENTRY + "  # what"),
        ("v: v, g: g}}", "v: v, g: chunk_local_cumsum.y}}"), ("g: g}, with", "g: chunk_local_cumsum.y}, with"),
    ),
    "a stage of one output stands for it": (
        changed(BLOCK, ("g: chunk_local_cumsum.y}", "g: chunk_local_cumsum}"), ("g: 'g'", "g: chunk_local_cumsum.y")),
        ("g: chunk_local_cumsum}", "g: chunk_local_cumsum.y}"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", CASES)
def test_repairs_are_minimal(name, line_end):
    """The result is the text with these changes and no other one; repaired again, it stays."""
    before, *changes = CASES[name]
    after = changed(before, *changes).replace("\n", line_end)
    assert repaired(before.replace("\n", line_end)) == after
    assert repaired(after) == after


@pytest.mark.parametrize("path", [path for path in SHIPPED if "use: " in path.read_text()], ids=lambda path: path.stem)
def test_what_was_broken_is_as_it_was(path):
    """Every stage's name misspelt, and every edge from a converter led past it: repaired to the very same text."""
    text = path.read_text(encoding="utf-8")
    broken = re.sub(r"use: (\w+)(\w)\b", r"use: \1\2\2", text)
    gate = re.search(r"cumsum: \{use: \w+, +in: \{x: ([\w.]+)\}", text)
    if gate:
        broken = broken.replace("cumsum.y", gate[1])
    assert broken != text and repaired(broken) == text


NOT_CERTAIN = {
    "the key that is near stands there already": ("with: {scale: 1}", "with: {scale: 1}, in2: {}"),
    "no unit converts": ("unit: log_decay/ln/token", "unit: decay/linear/token"),
    "a value law is missing": (', where: "<= 0"', ""),
    "a name of one letter": ("q: q, k", "y: q, k"),
    "a key that is written with an escape": ("dtype: f32", r'"d\x79tpe": f32'),
}


@pytest.mark.parametrize("change", NOT_CERTAIN.values(), ids=NOT_CERTAIN)
def test_what_is_not_certain_is_not_written(change, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = changed(FLOW, change)
    Path("op.yaml").write_text(text)
    assert main(["check", "op.yaml", "--fix"]) == 2
    shown = capsys.readouterr()
    assert Path("op.yaml").read_text() == text
    assert shown.err.startswith("error[CW")
    note = r"^op\.yaml: (not written: \d repairs?, and \d errors? left|nothing to repair with certainty)$"
    assert re.search(note, shown.out, re.MULTILINE)


DIFF = """\
--- a/op.yaml
+++ b/op.yaml
@@ -7,9 +7,10 @@
   v: B T H V
   g: {shape: B T H, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
 stages:
+  chunk_local_cumsum: {use: chunk_local_cumsum, in: {x: g}}
   # the scan over chunks
-  scan: {use: chunk_h, in: {k: k, v: v, g: g}}   # raw
+  scan: {use: chunk_h, in: {k: k, v: v, g: chunk_local_cumsum.y}}   # raw
BLANK
   # what comes out
-  out:  {use: chunk_o, in: {q: q, k: k, v: v, h: scan.h, g: g}, with: {scale: 1}}
+  out:  {use: chunk_o, in: {q: q, k: k, v: v, h: scan.h, g: chunk_local_cumsum.y}, with: {scale: 1}}
 outputs: {o: out.o}
""".replace("BLANK", " ")


def test_the_diff_of_an_absolute_path(tmp_path, capsys):
    """Its names are those that `git apply --directory=/` takes: one slash each."""
    path = tmp_path / "op.yaml"
    path.write_text(FLOW)
    assert main(["check", str(path), "--diff"]) == 2
    assert f"--- a{path}\n+++ b{path}\n" in capsys.readouterr().out


def test_a_misspelt_key_hides_no_other_error(folder, capsys):
    """Keys, wiring, expressions and units in one run, each at its place in the file as it is."""
    text = changed(
        FLOW,
        ("g: {shape: B T H, dtype: f32, unit", "g: {shpae: B T H, dtyype: f32, unit"),
        ("{use: chunk_h, in: {k: k, v: v, g: g}}", "{uses: chunk_h, in: {k: kk, v: v, g: g}, recompote: true}"),
        ("with: {scale: 1}", "with: {scale: D}"),
    )
    Path("op.yaml").write_text(text)
    assert main(["check", "op.yaml", "--json"]) == 2
    errors = json.loads(capsys.readouterr().out)["errors"]
    lines = text.split("\n")
    found = [(each["code"], lines[each["line"] - 1][each["column"] - 1 : each["end_column"] - 1]) for each in errors]
    assert found == [
        ("CW201", "shpae"), ("CW201", "dtyype"), ("CW201", "uses"), ("CW223", "kk"), ("CW304", "g"),
        ("CW201", "recompote"), ("CW304", "g"), ("CW402", "D"),
    ]  # fmt: skip
    for each in errors:
        for note in each["notes"]:
            if note["line"]:
                assert lines[note["line"] - 1][note["column"] - 1 :].startswith(("log_decay/ln/token", "B T H"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_fix_shows_the_difference_writes_and_checks_again(folder, capsys):
    Path("op.yaml").write_text(FLOW)
    assert main(["check", "op.yaml", "--fix"]) == 0
    assert capsys.readouterr() == (DIFF + "op.yaml: 2 repairs\nop: ok, 3 stages\n", "")
    assert main(["check", "op.yaml", "--fix"]) == 0
    assert capsys.readouterr() == ("op.yaml: as it is\nop: ok, 3 stages\n", "")


def test_diff_writes_nothing(folder, capsys):
    Path("op.yaml").write_text(FLOW)
    assert main(["check", "op.yaml", "--diff"]) == 2
    out, err = capsys.readouterr()
    assert out == DIFF + "op.yaml: 2 repairs, not written\n"
    assert err.count("error[CW304]") == 2 and Path("op.yaml").read_text() == FLOW


def test_json_has_the_difference(folder, capsys):
    Path("op.yaml").write_text(FLOW)
    Path("other.yaml").write_text(repaired(FLOW))
    assert main(["check", "op.yaml", "other.yaml", "--fix", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["pipelines"]
    assert (first["ok"], first["stages"], first["fixed"], first["note"]) == (True, 3, True, "op.yaml: 2 repairs")
    assert first["diff"] == DIFF.splitlines()
    assert (second["fixed"], second["diff"]) == (False, [])


def test_bytes_that_are_not_repaired_stay(folder):
    """The byte order mark, the line ends, and no line end at the end of the file."""
    text = FLOW.replace("\n", "\r\n").rstrip()
    Path("op.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert main(["check", "op.yaml", "--fix"]) == 0
    assert Path("op.yaml").read_bytes() == b"\xef\xbb\xbf" + repaired(text).encode()


def test_a_pipeline_that_ships_is_written_by_its_path_alone(folder, monkeypatch, capsys):
    (folder / "shipped").mkdir()
    file = folder / "shipped" / "op.yaml"
    file.write_text(FLOW)
    monkeypatch.setattr("chunkwise.runner.loading.pipelines.FOLDER", file.parent)
    assert main(["check", "op", "--fix"]) == 2
    assert "error[CW601]: op ships with chunkwise" in capsys.readouterr().err
    assert file.read_text() == FLOW
    assert main(["check", "shipped/op.yaml", "--fix"]) == 0


def test_a_file_that_cannot_be_written(folder, monkeypatch, capsys):
    Path("op.yaml").write_text(FLOW)

    def refuse(self, data):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert main(["check", "op.yaml", "--fix"]) == 2
    assert "error[CW601]: --fix cannot write op.yaml: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "bad").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_text_is_too_broken_to_be_looked_at(path, capsys):
    """What else stands behind is looked for too; it ends with the file's errors, not with a fault of chunkwise."""
    assert main(["check", str(path), "--diff"]) == 2
    assert "CW901" not in capsys.readouterr().err


@pytest.mark.parametrize("name, expected", [
    ("scna", "scan"),
    ("SCAN", "scan"),
    ("skan", "scan"),
    ("sc", None),
    ("skam", None),
    ("z", None),
    ("X", "x"),
    ("chunk_local_cumsun", "chunk_local_cumsum"),
    ("chunk_local_cmusmu", "chunk_local_cumsum"),
    ("chunk_", "chunk_h"),
    ("chunk_oh", None),
])  # fmt: skip
def test_a_slip_of_the_pen_means_one_name_alone(name, expected):
    names = ["scan", "x", "chunk_local_cumsum", "chunk_local_cumsum_k", "chunk_h"]
    assert meant(name, [*names, "chunk_o"] if name == "chunk_oh" else names) == expected


def test_edits_count_swaps_as_one():
    assert [edits(a, b, 9) for a, b in [("", ""), ("ab", "ba"), ("abc", "acbd"), ("kitten", "sitting")]] == [0, 1, 2, 3]


VARIANT = "schema: pipeline/v1\nname: variant\nextends: {base}\nreplace:\n  stages:\n    scan: {{in: {{g: g}}}}\n"


@pytest.fixture
def variants(tmp_path, monkeypatch, capsys):
    """What check --fix says of variant.yaml on stdout, and what it is then; whole.yaml extends it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def fixed(base, named, more=""):
        Path("variant.yaml").write_text(VARIANT.format(base=base) + more)
        Path("whole.yaml").write_text("schema: pipeline/v1\nname: whole\nextends: variant\nsummary: The same\n")
        main(["check", named, "--fix"])
        return capsys.readouterr().out, Path("variant.yaml").read_text().removesuffix(more)

    return fixed


def test_a_fault_under_replace_is_repaired_where_it_is_written(variants):
    """The base has the converting stage: one name in the variant is another."""
    out, text = variants("simple_gla", "variant.yaml")
    assert out.endswith("variant.yaml: 1 repair\nvariant: ok, 3 stages\n")
    assert text == VARIANT.format(base="simple_gla").replace("g: g}", "g: cumsum.y}")


def test_a_fault_of_the_file_that_is_extended_is_left_there(variants):
    out, text = variants("simple_gla", "whole.yaml")
    assert out == "whole.yaml: what is to be repaired stands in variant.yaml: check that file --fix\n"
    assert text == VARIANT.format(base="simple_gla")


def test_a_stage_that_has_no_place_to_stand_at_is_not_put_in(variants):
    """Under replace nothing is added, and the file has no stages of its own."""
    gate = 'inputs: {g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}}\n'
    out, text = variants("delta_rule", "variant.yaml", gate)
    why = "the file has no entry under stages for the converting stage to stand at"
    assert out == f"variant.yaml: nothing to repair with certainty: {why}\n"
    assert text == VARIANT.format(base="delta_rule")
