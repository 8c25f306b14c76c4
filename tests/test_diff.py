"""``chunkwise diff``: what two pipelines do not have in common, by its exact text, and the picture of both."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from chunkwise.runner import load
from chunkwise.runner.comparing.compare_graphs import difference
from chunkwise.runner.diagnostics.explanations import EXPLANATIONS
from chunkwise.runner.drawing import palette
from chunkwise.runner.drawing.build_diff_picture import build_diff_picture
from chunkwise.runner.drawing.build_picture import build_picture
from chunkwise.runner.drawing.draw import draw_picture
from chunkwise.runner.drawing.picture import ADDED, CHANGED, INPUT, REMOVED, STAGE
from chunkwise.runner.main import main

BASE = (Path(__file__).parent / "bad" / "extends" / "base.yaml").read_text()
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)
    return tmp_path


def changed(*changes, name="other"):
    """A file like base.yaml, with some texts replaced; its path."""
    text = BASE.replace("name: base", f"name: {name}")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path(f"{name}.yaml").write_text(text)
    return f"{name}.yaml"


def diff(capsys, *argv):
    code = main(["diff", *argv, "--out", "-"])
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, captured.out


def parts(capsys, *argv):
    """The text below the two names."""
    code, text = diff(capsys, *argv)
    assert code == 1
    return text.split("\n\n", 1)[1]


def test_no_difference(here, capsys):
    assert diff(capsys, "base.yaml", changed(("axes:", "# a remark\naxes:"))) == (
        0,
        "- base  (base.yaml)\n+ other  (other.yaml)\n\nno difference\n",
    )


def test_the_order_of_the_file_is_no_difference(here, capsys):
    first, second = "  q: B T H K\n", "  k: B T H K\n"
    assert diff(capsys, "base.yaml", changed((first + second, second + first)))[0] == 0


EVERY_PART = """\
axes
  ~ C  64 -> 32

inputs
  ~ k where  none -> unit_norm(K)
  ~ g where  <= 0 -> -5..0
  + x        B T HV V, io

params
  ~ scale  K ** -0.5 -> 1
  + bound  2

constraints
  + K <= 128

definition
  - step  S = S + outer(k, v)
  + step  S = S + outer(k, x)

stages
  + knorm           l2norm, x <- k, eps = 1e-06
  ~ scan recompute  false -> true
  ~ out scale       scale -> bound

edges
  ~ scan.k  k -> knorm.y
  ~ scan.v  v -> x
  ~ out.k   k -> knorm.y
"""


def test_every_part(here, capsys):
    other = changed(
        ("C: 64", "C: 32"),
        ("  k: B T H K", "  k: {shape: B T H K, where: unit_norm(K)}"),
        ('"<= 0"', "-5..0"),
        ("params:", "  x: B T HV V\nparams:"),
        ("K ** -0.5}", "1, bound: 2}\nconstraints: [K <= 128]"),
        ("outer(k, v)", "outer(k, x)"),
        ("stages:", "stages:\n  knorm: {use: l2norm, in: {x: k}}"),
        ("in: {k: k, v: v, g: cumsum.y}}", "in: {k: knorm.y, v: x, g: cumsum.y}, recompute: true}"),
        ("k: k, v: v, h: scan.h", "k: knorm.y, v: v, h: scan.h"),
        ("with: {scale: scale}", "with: {scale: bound}"),
    )
    assert parts(capsys, "base.yaml", other) == EVERY_PART


def test_a_stage_under_another_id_is_renamed_and_its_edges_are_the_same(here, capsys):
    other = changed(
        ("  scan: ", "  states: "), ("scan.h", "states.h"), ("  cumsum:", "  sums:"), ("cumsum.y", "sums.y")
    )
    assert parts(capsys, "base.yaml", other) == "stages\n  ~ sums    was cumsum\n  ~ states  was scan\n"


def test_an_id_that_means_something_else_is_not_the_same_stage(here, capsys):
    """``norm`` is of k in the one and of q in the other, where the one of k is called ``knorm``."""
    plain = ("stages:", "stages:\n  norm: {use: l2norm, in: {x: k}}"), ("{q: q, k: k", "{q: q, k: norm.y")
    one = changed(*plain, name="one")
    both = ("stages:", "stages:\n  norm: {use: l2norm, in: {x: q}}\n  knorm: {use: l2norm, in: {x: k}}")
    two = changed(both, ("{q: q, k: k", "{q: norm.y, k: knorm.y"), name="two")
    assert parts(capsys, one, two) == (
        "stages\n  + norm   l2norm, x <- q, eps = 1e-06\n  ~ knorm  was norm\n\nedges\n  ~ out.q  q -> norm.y\n"
    )


def test_a_stage_removed_and_another_of_its_name_added(here, capsys):
    gone = changed(("stages:", "stages:\n  beta: {use: l2norm, in: {x: k}}"), ("{k: k, v", "{k: beta.y, v"), name="one")
    other = changed(("stages:", "stages:\n  beta: {use: l2norm, in: {x: q}}"), ("{q: q", "{q: beta.y"), name="two")
    found = difference(load(gone).whole, load(other).whole)
    assert found.matches["beta"] == "beta"  # one id and one stage: the same place, with another edge
    assert ("edges", "beta.x", "k", "q") in [(e.part, e.name, e.before, e.after) for e in found.changes]


def test_shipped_pairs(here, capsys):
    assert (
        parts(capsys, "kda", "kda_bounded")
        == """\
params
  + bound  -5

definition
  - step  S = diag(exp(-exp(A_log) * softplus(a + dt_bias))) @ S
  + step  S = diag(exp(bound * sigmoid(exp(A_log) * (a + dt_bias)))) @ S

stages
  ~ gate use    kda_gate -> kda_gate_bounded
  ~ gate bound  none -> bound

types of values
  ~ gate.g where  <= 0 -> -5..0
"""
    )
    assert (
        parts(capsys, "delta_rule", "gated_delta")
        == """\
inputs
  + g  B T HV, f32, log_decay/ln/token, <= 0

definition
  + step  S = exp(g) * S

stages
  + cumsum  chunk_local_cumsum, x <- g

edges
  + kkt.g   cumsum.y
  + wy.g    cumsum.y
  + scan.g  cumsum.y
  + out.g   cumsum.y

types of values
  ~ kkt.A unit     gram/strict_lower/ungated -> gram/strict_lower/gated
  ~ solve.Ai unit  gram/unit_lower_inverse/ungated -> gram/unit_lower_inverse/gated
"""
    )


def test_trouble_is_two(here, capsys):
    assert main(["diff", "base.yaml", "nowhere.yaml"]) == 2
    assert "there is no pipeline nowhere.yaml" in capsys.readouterr().err


def document(capsys, *argv):
    code = main(["diff", *argv, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["errors"] == []
    return code, found


def test_json(here, capsys):
    other = changed(("  scan: ", "  states: "), ("scan.h", "states.h"), ("C: 64", "C: 32"))
    code, found = document(capsys, "base.yaml", other)
    assert (code, found["same"], found["pipelines"]) == (1, False, ["base", "other"])
    assert found["matches"] == {"cumsum": "cumsum", "scan": "states", "out": "out"}
    assert found["changes"] == [
        {"part": "axes", "kind": "changed", "name": "C", "before": "64", "after": "32"},
        {"part": "stages", "kind": "renamed", "name": "states", "before": "scan", "after": "states"},
    ]
    assert (found["times"], found["files"], found["errors"]) == (None, [str(Path("out/other/diff.svg"))], [])
    assert document(capsys, "base.yaml", "base.yaml")[0] == 0


# --- times


def report(name, pipeline, times, **other):
    """A report.json as run writes it."""
    stages = [{"id": id, "stage": f"use_{id}", "latency_ms": ms} for id, ms in times.items()]
    sums = dict(sum_of_stages_ms=sum(times.values()), end_to_end_ms=2 * sum(times.values()))
    facts = dict(pipeline=pipeline, dtype="bf16", backend="triton", seqlens=None, timed_by="events", axes={"T": 64})
    Path(name).write_text(json.dumps({**facts, "environment": {"cpu": "x"}, "stages": stages, **sums, **other}))
    return name


def test_times_beside_each_other(here, capsys):
    other = changed(("  scan: ", "  states: "), ("scan.h", "states.h"))
    old = report("a.json", "base", {"cumsum": 1, "scan": 2, "scan.vjp": 4, "d(scan.h)": 0.5})
    times = {"cumsum": 0.5, "states": 3, "out": 1, "states.vjp": 4, "d(states.h)": 0.25}
    new = report("b.json", "other", times, axes={"T": 128})
    text = parts(capsys, "base.yaml", other, "--reports", old, new)
    lines = [line.split() for line in text.split("\n\n")[1].splitlines()]
    assert lines == [
        ["milliseconds"],
        ["stage", "uses", "base", "other", "difference"],
        ["cumsum", "use_cumsum", "1.0000", "0.5000", "-0.5000"],
        ["states", "use_states", "2.0000", "3.0000", "+1.0000"],
        ["out", "use_out", "-", "1.0000"],
        ["states.vjp", "use_states.vjp", "4.0000", "4.0000", "+0.0000"],
        ["d(states.h)", "use_d(states.h)", "0.5000", "0.2500", "-0.2500"],
        ["sum", "of", "stages", "7.5000", "8.7500", "+1.2500"],
        ["end", "to", "end", "15.0000", "17.5000", "+2.5000"],
        ["note:", "the", "runs", "differ", "in", "T:", "64", "and", "128"],
    ]
    found = document(capsys, "base.yaml", other, "--reports", old, new)[1]["times"]
    assert found["stages"][1] == {"id": "states", "stage": "use_states", "latency_ms": [2, 3]}
    assert (found["end_to_end_ms"], found["notes"]) == ([15, 17.5], ["T: 64 and 128"])


def test_a_stage_that_is_gone_and_a_new_one_of_its_name(here, capsys):
    """``norm`` of the first is ``knorm`` of the second, whose ``norm`` is new; ``old`` is an input there."""
    norms = ("stages:", "stages:\n  norm: {use: l2norm, in: {x: k}}\n  old: {use: l2norm, in: {x: v}}")
    line = "    - o = scale"
    one = changed(
        norms,
        ("{q: q, k: k", "{q: q, k: norm.y"),
        ("outputs: {", "outputs: {b: old.y, "),
        (line, f"    - b = v\n{line}"),
        name="one",
    )
    two = changed(
        ("stages:", "stages:\n  norm: {use: l2norm, in: {x: q}}\n  knorm: {use: l2norm, in: {x: k}}"),
        ("{q: q, k: k", "{q: norm.y, k: knorm.y"),
        ("  g: {", "  old: B T HV K\n  g: {"),
        ("outputs: {", "outputs: {b: old, "),
        (line, f"    - b = old\n{line}"),
        name="two",
    )
    files = report("a.json", "one", {"norm": 1, "old": 2}), report("b.json", "two", {"norm": 3, "knorm": 4})
    found = document(capsys, one, two, "--reports", *files)[1]
    assert {row["id"]: row["latency_ms"] for row in found["times"]["stages"]} == {
        "norm": [None, 3],
        "knorm": [1, 4],
        "old (one)": [2, None],
    }
    svg = Path(found["files"][0]).read_text()
    assert all(f">{words}</text>" in svg for words in ("3 ms", "1 -&gt; 4 ms", "- old (one)", "2 ms"))


def test_two_runs_of_one_pipeline(here, capsys):
    files = [report(f"{name}.json", "base", {"scan": ms, "gone": 1}) for name, ms in (("a", 1), ("b", 2))]
    report("b.json", "base", {"scan": 2})
    code, text = diff(capsys, "base.yaml", "base.yaml", "--reports", *files)
    lines = [line.split() for line in text.splitlines()[4:]]
    assert code == 0 and lines[2:4] == [
        ["stage", "uses", "first", "second", "difference"],
        ["scan", "use_scan", "1.0000", "2.0000", "+1.0000"],
    ]
    assert lines[4] == ["gone", "use_gone", "1.0000", "-"]


def test_a_run_with_gradients_beside_one_without(here, capsys):
    files = report("a.json", "base", {"scan": 1, "scan.vjp": 2}), report("b.json", "base", {"scan": 1})
    text = diff(capsys, "base.yaml", "base.yaml", "--reports", *files)[1]
    assert "note: the runs differ in gradients: with and without" in text


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "null", '{"pipeline": "base"}', '{"stages": 3}', "[" * 5000, b"\xff"],
)
def test_what_is_no_report(here, capsys, text):
    good = report("good.json", "base", {"scan": 1})
    Path("bad.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["diff", "base.yaml", "base.yaml", "--reports", good, "bad.json"]) == 2
    assert capsys.readouterr().err.startswith("error[CW610]: bad.json is not the report of a run\nhelp: ")


def test_a_report_of_nan_and_a_report_of_another_pipeline(here, capsys):
    good = report("good.json", "base", {"scan": 1})
    for bad, words in (
        (report("nan.json", "base", {"scan": float("nan")}), "nan.json is not the report of a run"),
        (report("gla.json", "gla", {"scan": 1}), "gla.json is a run of gla, and one of base belongs here"),
        ("nowhere.json", "no such file: nowhere.json"),
    ):
        assert main(["diff", "base.yaml", "base.yaml", "--reports", good, bad]) == 2
        assert words in capsys.readouterr().err


def test_the_example_of_the_explanation_gives_its_code(here, capsys):
    words = EXPLANATIONS["CW610"].example.split()
    for file in words[-2:]:
        Path(file).write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    assert main(words[1:]) == 2 and "error[CW610]" in capsys.readouterr().err


# --- the picture


def picture_of(old, new, **more):
    return build_diff_picture(difference(load(old).whole, load(new).whole), **more)


PAIRS = [("gated_delta", "gated_delta_l2norm"), ("linear_attn", "mamba2"), ("kda", "kda_bounded"), ("gla", "kda_core")]


@pytest.mark.parametrize("old, new", PAIRS)
def test_what_is_not_marked_as_gone_is_the_second_graph(old, new):
    shown, second = picture_of(old, new), build_picture(load(new).whole)
    here_now = [each for each in shown.tensors if each.change != REMOVED]
    assert [(each.kind, each.name, each.tensor) for each in here_now] == [
        (each.kind, each.name, each.tensor) for each in second.tensors
    ]
    assert [each.id for each in shown.stages if each.change != REMOVED] == [each.id for each in second.stages]
    arrows = [(each.tail, each.head) for each in shown.arrows if each.change != REMOVED]
    assert arrows == [(each.tail, each.head) for each in second.arrows]


@pytest.mark.parametrize("old, new", PAIRS)
def test_what_is_not_marked_as_new_is_the_first_graph(old, new):
    shown, first = picture_of(old, new), build_picture(load(old).whole)
    for part in ("tensors", "stages", "arrows"):
        kept = [each for each in getattr(shown, part) if each.change != ADDED]
        assert len(kept) == len(getattr(first, part))


def test_changes_are_marked():
    shown = picture_of("linear_attn", "mamba2")
    inputs = {box.name: box.change for box in shown.tensors if box.kind == INPUT}
    assert (inputs["q"], inputs["dt"], inputs["initial_state"]) == (REMOVED, ADDED, "")
    stages = {stage.id: (stage.change, stage.remarks) for stage in shown.stages}
    assert stages["read"] == (CHANGED, ("id: was out", "scale: was scale")) and stages["scan"] == ("", ())
    heads = {arrow.tail[1]: arrow.change for arrow in shown.arrows if arrow.head == (STAGE, "scan", "v")}
    assert heads == {"write.v": ADDED, "v": REMOVED}


def test_a_changed_type_says_what_it_was():
    (k,) = (box for box in picture_of("gated_delta", "gated_delta_l2norm").tensors if box.name == "k")
    assert (k.change, k.remarks) == (CHANGED, ("where: was unit_norm(K)",))


def test_a_stage_that_is_gone_does_not_take_the_name_of_a_new_one(here):
    old = changed(("stages:", "stages:\n  more: {use: l2norm, in: {x: k}}"), ("{k: k, v", "{k: more.y, v"), name="old")
    new = changed(("  g: {", "  more: B T H K\n  g: {"), ("{k: k, v", "{k: more, v"), name="new")
    assert [stage.id for stage in picture_of(old, new).stages if stage.change == REMOVED] == ["more (old)"]


def test_the_svg_can_be_read_without_colour():
    svg = draw_picture(picture_of("linear_attn", "mamba2", times={"scan": "1 -> 2 ms"}), "svg").text
    root = ElementTree.fromstring(svg)
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {"+ added (thick)", "- removed (dotted)", "~ changed"} <= set(texts)
    assert {"+ dt", "- q", "~ read", "id: was out", "1 -> 2 ms"} <= set(texts)
    groups = {each.get("id"): each for each in root.iter(f"{SVG}g")}
    assert groups["input-q"].find(f"{SVG}rect").get("stroke-dasharray") == "1.5 2.5"
    assert float(groups["input-dt"].find(f"{SVG}rect").get("stroke-width")) > 2
    assert groups["stage-scan"].find(f"{SVG}rect").get("stroke-dasharray") is None
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', svg)) - {"none"}
    assert colours <= palette.DARK.keys() and {each for pair in palette.CHANGES.values() for each in pair} <= colours


@pytest.mark.parametrize("old, new", PAIRS)
def test_texts_fit_into_their_boxes(old, new):
    root = ElementTree.fromstring(draw_picture(picture_of(old, new), "svg").text)
    for box in root.iter(f"{SVG}g"):
        frame = box.find(f"{SVG}rect")
        for line in box.iter(f"{SVG}text") if frame is not None else ():
            half = 0.602 * float(line.get("font-size", 10)) * len(line.text) / 2
            left, x = float(frame.get("x")), float(line.get("x"))
            assert left + 2 < x - half and x + half < left + float(frame.get("width")) - 2, line.text


@pytest.mark.parametrize("format", ["svg", "dot", "mermaid"])
def test_the_same_bytes_every_time(format):
    one, two = (draw_picture(picture_of("gla", "kda_core"), format) for _ in range(2))
    assert one == two and one.note is None


def test_mermaid_has_the_kinds_as_classes():
    text = draw_picture(picture_of("linear_attn", "mamba2"), "mermaid").text
    assert all(f"classDef {change} fill:" in text for change in palette.CHANGES)
    assert "<b>+ dt</b>" in text and "stroke-dasharray:2 3" in text


@pytest.mark.parametrize("format, suffix", [("svg", "svg"), ("dot", "dot"), ("mermaid", "mmd")])
def test_the_file(here, capsys, format, suffix):
    assert main(["diff", "base.yaml", changed(("C: 64", "C: 32")), "--format", format]) == 1
    assert capsys.readouterr().out.endswith(f"wrote {Path('out/other')}/diff.{suffix}\n")
    assert Path(f"out/other/diff.{suffix}").read_text()
