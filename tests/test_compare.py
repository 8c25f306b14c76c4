"""``chunkwise compare``: a slowed stage is found, by name and in every scope that it is in; noise is not."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.bench_files import PIPELINE, SIZES, STAGE, quick  # noqa: F401
from support.records import FULL

from chunkwise.runner.benching.record import line
from chunkwise.runner.main import main
from chunkwise.runner.reporting.clocks import Timing

SLEEPS = STAGE.replace("    return {\"y\"", "    time.sleep(0.004)\n    return {\"y\"")
SLOWED = SLEEPS.replace("0.004", "0.03")
SAME = SLEEPS.replace("2 * x", "1 * x").replace("2 * d_y", "1 * d_y")
TWO = PIPELINE.replace("in: {x: x}}", "in: {x: x}}, two: {use: same, in: {x: one.y}}").replace("y: one.y", "y: two.y")


@pytest.fixture
def chunkwise(tmp_path, monkeypatch, capsys, quick):  # noqa: F811
    """(exit code, stdout, stderr) of a command line, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        code = main([*argv])
        return (code, *capsys.readouterr())

    return run


def measured(chunkwise, name, text, **stages):
    """Bench a pipeline with these stages; where its records went."""
    Path(f"{name}.yaml").write_text(text)
    Path(name).mkdir()
    for stage, source in stages.items():
        Path(name, f"{stage}.py").write_text(source)
    options = ("--stages", name, "--axes", SIZES, "--device", "cpu", "--out", f"out/{name}")
    assert chunkwise("bench", f"{name}.yaml", *options)[0] == 0
    return f"out/{name}"


def lines_of(out):
    return [line.rstrip() for line in out.splitlines() if line.strip()]


def verdicts(out):
    rows = json.loads(out)["rows"]
    return {(row["stage"], row["scope"]): row["verdict"] for row in rows}


def test_a_slowed_copy_of_a_stage_is_found(chunkwise):
    before = measured(chunkwise, "before", TWO, twice=SLEEPS, same=SAME)
    after = measured(chunkwise, "after", TWO, twice=SLOWED, same=SAME)
    code, out, err = chunkwise("compare", before, after, "--fail-above", "50")
    said = re.findall(r"error\[CW807\]: op, ([\w ]+) \(chunkwise reference, [\w ]+\) is slower by", err)
    assert code == 1 and said == ["one", "one", "sum of stages", "sum of stages", "end to end"]
    assert "after.yaml:5" in err and any(row.split()[0] == "one" and row.endswith("slower") for row in lines_of(out))
    code, out, _ = chunkwise("compare", before, after, "--json")
    found = verdicts(out)
    assert code == 0 and found["one", "stage alone"] == found["one", "stage inside"] == "slower"
    code, out, _ = chunkwise("compare", after, before, "--fail-above", "50", "--json")
    assert code == 0 and verdicts(out)["one", "stage alone"] == "faster"
    assert chunkwise("compare", before, before, "--fail-above", "0")[0] == 0


def written(name, *records):
    Path(name).write_text("".join(map(line, records)))
    return name


def at(ms, **what):
    return replace(FULL, timing=Timing(ms, 0.99 * ms, 1.01 * ms, 50, 0.5), what=replace(FULL.what, **what))


@pytest.mark.parametrize("ms, limit, code", [(1.04, "5", 0), (1.06, "5", 1), (1.5, None, 0), (0.5, "0", 0)])
def test_only_what_is_slower_by_more_than_allowed_fails(chunkwise, ms, limit, code):
    files = written("a.jsonl", at(1.0)), written("b.jsonl", at(ms))
    assert chunkwise("compare", *files, *(["--fail-above", limit] if limit else []))[0] == code


def test_a_peer_that_is_slower_is_no_regression(chunkwise):
    files = (written(f"{name}.jsonl", at(ms, implementation="fla 0.6.0")) for name, ms in (("a", 1.0), ("b", 2.0)))
    code, out, _ = chunkwise("compare", *files, "--fail-above", "5")
    assert code == 0 and "slower" in out


def test_an_implementation_beside_itself_is_refused(chunkwise):
    name = written("a.jsonl", at(1.0))
    code, _, err = chunkwise("compare", name, "--implementations", "chunkwise", "chunkwise triton")
    assert code == 2 and "error[CW601]: --implementations names chunkwise triton twice" in err


def test_a_stage_that_does_the_work_of_several_is_no_regression(chunkwise):
    """Its row says what it is in place of; the sum says whether that pays."""
    plain = [at(1.0, uses="chunk_h"), at(1.0, stage="out", uses="chunk_o"), at(2.0, stage="sum of stages", uses="")]
    fused = [at(1.5, stage="out", uses="chunk_h_o"), at(1.5, stage="sum of stages", uses="")]
    files = written("a.jsonl", *plain), written("b.jsonl", *fused)
    code, text, _ = chunkwise("compare", *files, "--fail-above", "0")
    assert code == 0 and rows_of(text) == [
        "out (chunk_o -> chunk_h_o)  stage alone  1.000  1.500  +50.0 %  0.7 %  slower",
        "sum of stages, chunkwise triton  stage alone  2.000  1.500  -25.0 %  0.7 %  faster",
        "scan  stage alone  1.000  -  not there after",
    ]
    code, _, err = chunkwise("compare", *reversed(files), "--fail-above", "0")
    assert code == 1 and re.findall(r"gdn, (.*?) \(", err) == ["sum of stages"]


def test_two_implementations_of_one_file(chunkwise):
    name = written("a.jsonl", at(1.0), at(0.5, implementation="chunkwise fused"), at(2.0, stage="out"))
    code, out, _ = chunkwise("compare", name, "--implementations", "chunkwise triton", "chunkwise fused", "--json")
    (row,) = json.loads(out)["rows"]
    assert (row["stage"], row["verdict"], row["implementation"]) == (
        "scan", "faster", ["chunkwise triton", "chunkwise fused"],
    )  # fmt: skip


def test_two_pipelines_by_their_graphs_and_their_records(chunkwise):
    """What both have is paired by what it computes; what one alone has is said to be missing."""
    scan = at(1.0, pipeline="simple_gla", uses="chunk_h")
    out = at(1.0, pipeline="simple_gla", stage="out", uses="chunk_o")
    records = [scan, out, at(2.0, pipeline="gated_delta"), at(1.0, pipeline="gated_delta", stage="solve")]
    Path("out/bench").mkdir(parents=True)
    written("out/bench/records.jsonl", *records)
    code, text, _ = chunkwise("compare", "simple_gla", "gated_delta")
    assert code == 0 and "~ scan use  chunk_h -> chunk_delta_h" in text
    assert rows_of(text) == [
        "scan (chunk_h -> chunk_delta_h)  stage alone  1.000  2.000  +100.0 %  0.7 %  slower",
        "solve  stage alone  -  1.000  not in simple_gla",
        "out  stage alone  1.000  -  not in gated_delta",
    ]


def test_two_of_one_name_are_the_first_and_the_second(chunkwise):
    Path("out/bench").mkdir(parents=True)
    written("out/bench/records.jsonl", at(1.0, pipeline="simple_gla", uses="chunk_h"))
    code, text, _ = chunkwise("compare", "simple_gla", "simple_gla")
    assert code == 0 and rows_of(text) == ["scan  stage alone  1.000  1.000  +0.0 %  0.7 %  same"]
    head = next(line for line in lines_of(text) if "change" in line)
    assert re.split(" {2,}", head.strip()) == ["scope", "first ms", "second ms", "change", "+-", "verdict"]


def rows_of(text):
    """The rows of stages, their cells two spaces apart."""
    rows = (line.strip() for line in text.splitlines() if " stage alone " in line)
    return [re.sub(" {2,}", "  ", row) for row in rows]


SWAPPED = """\
schema: pipeline/v1
name: other
inputs: {z: B T HV}
definition: {step: [y = 2 * z]}
stages: {two: {use: twice, in: {x: z}}, one: {use: same, in: {x: two.y}}}
outputs: {y: one.y}
"""


def test_what_is_used_says_which_stage_is_which(chunkwise):
    """Each id means the other stage there, and no value has the name that it has here."""
    Path("own").mkdir()
    for stage, source in {"twice": STAGE, "same": SAME}.items():
        Path("own", f"{stage}.py").write_text(source)
    Path("op.yaml").write_text(TWO)
    Path("other.yaml").write_text(SWAPPED)
    sides = {"op": {"one": "twice", "two": "same"}, "other": {"two": "twice", "one": "same"}}
    times = {"twice": 1.0, "same": 3.0}
    records = [at(times[use], pipeline=name, stage=id, uses=use) for name in sides for id, use in sides[name].items()]
    Path("out/bench").mkdir(parents=True)
    written("out/bench/records.jsonl", *records)
    code, text, _ = chunkwise("compare", "op.yaml", "other.yaml", "--stages", "own")
    assert code == 0 and rows_of(text) == [
        "one -> two  stage alone  1.000  1.000  +0.0 %  0.7 %  same",
        "two -> one  stage alone  3.000  3.000  +0.0 %  0.7 %  same",
    ]
    _, out, _ = chunkwise("compare", "op.yaml", "other.yaml", "--stages", "own", "--json")
    row = json.loads(out)["rows"][0]
    assert (row["stages"], row["uses"]) == (["one", "two"], ["twice", "twice"])


def test_what_one_side_has_alone_is_a_row_though_its_sizes_have_an_axis_more(chunkwise):
    """gla has chunks, gla_serial has none."""
    axes, chunks = {"B": 1, "T": 64}, {"C": 64}
    gla = [("cumsum", "chunk_local_cumsum_k"), ("scan", "chunk_h_k")]
    records = [at(1.0, pipeline="gla", stage=id, uses=use) for id, use in gla]
    records = [replace(each, workload=replace(each.workload, axes=axes | chunks)) for each in records]
    serial = at(2.0, pipeline="gla_serial", uses="gla_chunk_scan")
    Path("out/bench").mkdir(parents=True)
    written("out/bench/records.jsonl", *records, replace(serial, workload=replace(serial.workload, axes=axes)))
    code, text, _ = chunkwise("compare", "gla", "gla_serial")
    assert code == 0 and rows_of(text) == [
        "scan (chunk_h_k -> gla_chunk_scan)  stage alone  1.000  2.000  +100.0 %  0.7 %  slower",
        "cumsum  stage alone  1.000  -  not in gla_serial",
    ]


def test_what_is_not_timed_any_more_is_a_regression(chunkwise):
    gone = replace(at(1.0), timing=None, why="out of memory")
    files = written("a.jsonl", at(1.0)), written("b.jsonl", gone)
    assert chunkwise("compare", *files)[0] == 0
    code, out, err = chunkwise("compare", *files, "--fail-above", "5")
    assert code == 1 and "out of memory" in out
    assert "gdn, scan (chunkwise triton, stage alone) is not timed any more: before 1 ms, after none, for out of" in err


def test_a_workload_that_one_has_alone_is_a_line(chunkwise):
    more = replace(FULL, workload=replace(FULL.workload, axes={"B": 1, "T": 512}))
    _, out, _ = chunkwise("compare", written("a.jsonl", at(1.0), more), written("b.jsonl", at(1.0)))
    said = [line for line in lines_of(out) if line.startswith("not there after")]
    assert said == ["not there after: gdn: bf16, chunk, B=1, T=512, packed 100,0,156, forward and backward"]


def test_implementations_by_their_first_words(chunkwise):
    name = written("a.jsonl", at(1.0), at(0.5, implementation="fla 0.6.0"))
    code, out, _ = chunkwise("compare", name, "--implementations", "chunkwise", "fla")
    assert code == 0 and "chunkwise triton ms" in out and "fla 0.6.0 ms" in out and "faster" in out
    written("a.jsonl", at(1.0), at(0.5, implementation="chunkwise fused"))
    code, _, err = chunkwise("compare", name, "--implementations", "chunkwise", "chunkwise triton")
    assert code == 2 and "2 implementations are 'chunkwise'" in err


def test_another_machine_is_said(chunkwise):
    other = replace(at(1.0), environment={"gpu": "H100", "cpu_threads": 2})
    _, out, _ = chunkwise("compare", written("a.jsonl", at(1.0)), written("b.jsonl", other))
    assert "note: the two were measured with different gpu: H200 and H100" in out


@pytest.mark.parametrize("argv, code, words", [
    (["a.jsonl"], "CW601", "two files"), (["no.jsonl", "a.jsonl"], "CW101", "cannot read no.jsonl"),
    (["a.jsonl", "a.jsonl", "--implementations", "x", "y"], "CW601", "inside one file"),
    (["a.jsonl", "--implementations", "x", "y"], "CW601", "no record is of 'x'"),
    (["a.jsonl", "a.jsonl", "--fail-above", "-3"], "CW601", "no percentage"),
    (["simple_gla", "gla", "--records", "a.jsonl"], "CW601", "has no record of simple_gla"),
    (["a.jsonl", "b.jsonl"], "CW601", "no figure in common; those that are closest differ in dtype: bf16 and fp32"),
    (["a.jsonl", "none.jsonl", "--fail-above", "5"], "CW612", "none.jsonl holds no record"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(chunkwise, argv, code, words):
    written("a.jsonl", at(1.0))
    written("b.jsonl", replace(at(1.0), workload=replace(FULL.workload, dtype="fp32")))
    written("none.jsonl")
    exit, _, err = chunkwise("compare", *argv)
    assert exit == 2 and code in err and words in err
