"""``chunkwise bench``: nothing is timed that was not verified, every row says how, and nothing is measured twice."""

import csv
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from support.bench_files import PIPELINE, SIZES, STAGE, quick  # noqa: F401

from chunkwise.runner.benching import bench as bench_module
from chunkwise.runner.benching import peers
from chunkwise.runner.benching.record import EAGER, END_TO_END, NOT_VERIFIED, SCOPES, STAGE_ALONE, read_records
from chunkwise.runner.commands._bench_cases import read_sweep
from chunkwise.runner.comparing.compare_records import thing
from chunkwise.runner.diagnostics import codes
from chunkwise.runner.diagnostics.errors import ChunkwiseError, Diagnostic
from chunkwise.runner.main import main


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys, quick):  # noqa: F811
    """(exit code, stdout, stderr) of a command line; the stage's file is as given."""
    monkeypatch.chdir(tmp_path)
    Path("op.yaml").write_text(PIPELINE)
    Path("stages").mkdir()

    def run(*options, stage=STAGE, pipeline="op.yaml"):
        Path("stages", "twice.py").write_text(stage)
        code = main(["bench", pipeline, "--stages", "stages", "--axes", SIZES, "--device", "cpu", *options])
        return (code, *capsys.readouterr())

    return run


def records():
    return read_records("out/bench/records.jsonl")


def test_records_tables_and_what_they_say(bench):
    code, out, _ = bench("--backward")
    assert code == 0 and "CPU reference times" in out
    found = records()
    assert {each.what.stage for each in found} == {"one", "one.vjp", "d(x)", "sum of stages", END_TO_END}
    assert all(each.clock.scope in SCOPES and each.clock.timer == "wall clock" and each.clock.l2 for each in found)
    assert all(each.gate == "verified at B=1, T=24, HV=2, N=1" for each in found)
    (alone,) = (each for each in found if (each.what.stage, each.clock.scope) == ("one", STAGE_ALONE))
    assert (alone.limits.flops, alone.limits.bytes) == (24 * 2, 2 * 4 * 24 * 2)
    assert alone.error.rel_l2_err <= alone.error.budget and alone.limits.bound_by == "latency"
    assert (alone.what.source.file, alone.what.source.line) == ("op.yaml", 5)
    with Path("out/bench/table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [each.id for each in found]
    assert "| one | twice | chunkwise reference |" in Path("out/bench/table").with_suffix(".md").read_text()


def test_as_json_it_is_one_document_with_every_record(bench):
    code, out, _ = bench("--json")
    document = json.loads(out)
    assert code == 0 and document["records"] == [each.document for each in records()]
    assert (document["new"], document["errors"]) == (len(document["records"]), [])


def test_the_gap_is_explained_and_the_edges_are_counted(bench):
    _, out, _ = bench("--backward")
    (whole,) = (each for each in records() if (each.what.stage, each.clock.scope) == (END_TO_END, EAGER))
    parts = r"end to end - sum of stages = \S+ ms: \S+ ms inside the stages, \S+ ms outside them"
    assert re.match(parts, whole.notes[0])
    assert whole.notes[0] in out and whole.host_us is None and whole.peak_mem_mb is None
    assert {(edge.source, edge.target) for edge in whole.edges} == {
        ("", "one"), ("one", ""), ("", "one.vjp"), ("one.vjp", "d(x)"), ("d(x)", ""),
    }  # fmt: skip
    assert whole.limits.bytes == 4 * 4 * 24 * 2  # x, y and the gradient of each


def test_what_is_there_is_not_measured_again(bench):
    bench()
    before = Path("out/bench/records.jsonl").read_text()
    code, out, err = bench()
    assert code == 0 and "0 records are new" in out and "time one" not in err
    assert Path("out/bench/records.jsonl").read_text() == before
    bench("--vs", "eager")
    added = Path("out/bench/records.jsonl").read_text().removeprefix(before)
    assert {json.loads(line)["what"]["implementation"].split()[0] for line in added.splitlines()} == {"eager"}


def test_a_run_that_was_interrupted_in_a_line_goes_on(bench):
    bench()
    path = Path("out/bench/records.jsonl")
    whole = path.read_text()
    path.write_text(whole[:-40])
    code, out, _ = bench()
    assert code == 0 and "1 records are new" in out and len(records()) == whole.count("\n")


def test_other_code_and_unverified_records_are_measured_again(bench):
    bench("--no-gate")
    count = len(records())
    for options in ({}, {"stage": STAGE.replace("2 * x", "x + x")}):
        _, out, _ = bench(**options)
        assert f"{count} records are new, 0 were there" in out


def test_no_gate_shouts(bench):
    code, out, _ = bench("--no-gate")
    assert code == 0 and out.count("NOT VERIFIED") >= 3
    assert {each.gate for each in records()} == {NOT_VERIFIED}
    assert f"!!! {NOT_VERIFIED}" in Path("out/bench/table").with_suffix(".md").read_text()


def test_nothing_wrong_is_timed(bench):
    code, _, err = bench(stage=STAGE.replace("2 * x}", "2.01 * x}"))
    assert code == 1 and "error[CW801]" in err
    (row,) = records()
    assert row.timing is None and "out" in row.why and row.gate.startswith("not verified")


def test_a_case_without_memory_is_a_row_and_the_next_one_is_measured(bench, monkeypatch):
    def measure(case, *rest):
        if case.sizes["T"] == 48:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return real(case, *rest)

    real = bench_module.measure
    monkeypatch.setattr(bench_module, "measure", measure)
    code, out, err = bench("--sweep", "T=48,24")
    assert code == 0 and "error" not in err and "out of memory: RuntimeError: DefaultCPUAllocator" in out
    assert [each.workload.axes["T"] for each in records() if not each.timing] == [48]
    assert {each.workload.axes["T"] for each in records() if each.timing} == {24}


def test_a_formula_above_the_ceiling_is_an_error(bench):
    code, _, err = bench(stage=STAGE.replace('flops="B * T * HV"', 'flops="B * T * HV * 10 ** 12"'))
    assert code == 1 and "error[CW806]" in err and "flops B * T * HV * 10 ** 12" in err and "twice.py" in err
    assert all(each.timing for each in records())


def test_every_case_is_one_of_the_progress_lines(bench):
    _, _, err = bench("--sweep", "T=8,16", "--dtype", "fp32,fp64")
    assert {(number, dtype, size) for number, dtype, size in re.findall(r"\[(\d)/4\] op (\w+) B1 T(\d+)", err)} == {
        ("1", "fp32", "8"), ("2", "fp32", "16"), ("3", "fp64", "8"), ("4", "fp64", "16"),
    }  # fmt: skip
    assert "s left" in err


def test_what_is_named_twice_is_one_case(bench):
    _, _, err = bench("op.yaml", "--workload", "tiny,tiny")
    assert set(re.findall(r"\[\d/(\d)\]", err)) == {"1"}


# --- peers


def peer(function):
    """A module of a peer that gives a function of x as y."""

    class Module:
        @staticmethod
        def peer(case):
            return peers.Peer("other 1.0", "other.double", lambda given: {"y": function(given.inputs["x"])})

    return Module


def crashes(x):
    raise AssertionError("num_warps must be 4\nand more")


def of_peer():
    return [each for each in records() if each.what.implementation in ("other 1.0", "fla")]


@pytest.mark.parametrize("function, why", [
    (lambda x: x + x, ""),
    (lambda x: 3 * x, r"computes something else: (d_x|y) is off by 5\.0e-01 from the definition"),
    (crashes, "failed: AssertionError: num_warps must be 4$"),
    (lambda x: sys.exit(3), "failed: SystemExit: 3$"),
    (lambda x: 2 * x + torch.nan, r"computes something else: (d_x|y) is off by nan"),
])  # fmt: skip
def test_a_peer_is_timed_where_it_computes_the_same(bench, monkeypatch, function, why):
    monkeypatch.setattr(peers, "module_of", lambda name: peer(function))
    code, out, _ = bench("--vs", "fla", "--backward")
    row = next(each for each in of_peer() if each.clock.scope == EAGER)
    assert code == 0 and re.match(why or "$", row.why) and (row.timing is None) == bool(why)
    assert row.what.implementation in out
    assert "0 records are new" in bench("--vs", "fla", "--backward")[1]
    if not why:
        assert row.error.rel_l2_err < 1e-6 and row.error.budget and row.what.ran == ("other.double",)


def test_a_peer_that_fails_in_the_race_is_a_row_and_ours_is_timed(bench, monkeypatch):
    calls = iter(range(10**6))
    monkeypatch.setattr(peers, "module_of", lambda name: peer(lambda x: x + x if next(calls) < 5 else crashes(x)))
    code, _, _ = bench("--vs", "fla")
    (row,) = (each for each in of_peer() if each.clock.scope == EAGER)
    assert code == 0 and row.timing is None and row.why == "failed: AssertionError: num_warps must be 4"
    assert any(each.timing for each in records() if (each.what.stage, each.clock.scope) == (END_TO_END, EAGER))


def test_what_would_be_right_only_broadcast_is_another_shape(bench, monkeypatch):
    monkeypatch.setattr(peers, "module_of", lambda name: peer(lambda x: (2 * x)[:, None]))
    code, _, _ = bench("--vs", "fla")
    (row,) = (each for each in of_peer() if each.clock.scope == EAGER)
    assert code == 0 and "y has the shape [1, 1, 24, 2] and should have [1, 24, 2]" in row.why


def test_a_peer_that_gives_fewer_gradients_says_so(bench, monkeypatch):
    monkeypatch.setattr(peers, "module_of", lambda name: peer(lambda x: 2 * x.detach()))
    code, out, _ = bench("--vs", "fla", "--backward")
    assert code == 0 and "other 1.0 gives no d_x: its time is for less" in out


def test_a_case_that_fails_now_has_the_key_of_its_time_before(bench, monkeypatch):
    """So that compare finds the two."""

    def measure(*args):
        raise ChunkwiseError(Diagnostic(codes.NOT_FINITE, "y is not finite"))

    bench()
    (before,) = (each for each in records() if each.clock.scope == EAGER)
    monkeypatch.setattr(bench_module, "measure", measure)
    assert bench(stage=STAGE.replace("2 * x}", "x + x}"))[0] == 1
    after = records()[-1]
    assert (after.timing, after.why) == (None, "y is not finite") and thing(after) == thing(before)


def test_a_stage_that_is_edited_meanwhile_is_other_code(bench, monkeypatch):
    """Its records are of what was imported, so that the next run measures what is there then."""

    def measure(*args):
        Path("stages", "twice.py").write_text(STAGE.replace("2 * x", "x + x"))
        return real(*args)

    real = bench_module.measure
    monkeypatch.setattr(bench_module, "measure", measure)
    assert bench("--sweep", "T=8,16")[0] == 0
    assert len({each.what.code for each in records()}) == 1
    count = len(records())
    _, out, _ = bench("--sweep", "T=8,16", stage=STAGE.replace("2 * x", "x + x"))
    assert f"{count} records are new, 0 were there" in out


def test_a_peer_that_is_not_there_or_does_not_fit_is_a_row(bench):
    code, out, _ = bench("--vs", "flashqla,sdpa")
    whys = {each.what.implementation: each.why for each in records() if each.why}
    assert code == 0 and whys == {
        "flashqla": "flashqla has nothing for op; it has gated_delta, gated_delta_l2norm",
        "sdpa": "sdpa has nothing for op; it has flash",
    }
    assert all(why in out for why in whys.values())


def test_the_references_are_a_peer_with_their_own_error(bench):
    bench("--vs", "eager", "--backward")
    (row,) = (e for e in records() if e.what.implementation.startswith("eager") and e.clock.scope == EAGER)
    assert row.timing and row.error.rel_l2_err <= row.error.budget and row.limits.sol_pct


def test_what_is_left_out_is_not_computed_and_every_record_says_so(bench):
    options = ("--axes", "B=1,T=20,H=1,HV=1,K=16,V=16", "--backward", "--without", "initial_state,final_state")
    code, out, err = bench(*options, pipeline="simple_gla")
    assert code == 0, err
    assert "NT=1, without initial_state, final_state, forward and backward" in out
    assert {record.workload.absent for record in records()} == {("initial_state", "final_state")}
    assert "d_initial_state" not in out and "final_state" not in {edge.value for r in records() for edge in r.edges}


@pytest.mark.parametrize("options, code, words", [
    (["--sweep", "T"], "CW602", "is not an axis and its sizes"),
    (["--sweep", "T=8..4*2"], "CW602", "never gets from 8 to 4"), (["--sweep", "T=1..9*1"], "CW602", "never gets"),
    (["--sweep", "T=1", "--sweep", "T=2"], "CW602", "gives T twice"), (["--sweep", "X=1"], "CW602", "no axis X"),
    (["--sweep", "T=1..900+1"], "CW601", "200 is the most"), (["--vs", "flaa"], "CW601", "no 'flaa'"),
    (["--mode", "chunk,recurrent", "--backward"], "CW601", "has no gradients"),
    (["--without", "x"], "CW601", "there is no 'x'"), (["--without", "y"], "CW601", "leaves no output of op"),
    (["--without", ""], "CW601", "an empty value"), (["--mode", "chunk,fast"], "CW601", "no 'fast'"),
    (["--dtype", "fp8"], "CW601", "no 'fp8'"),
])  # fmt: skip
def test_options_that_say_nothing_are_refused(bench, options, code, words):
    exit, _, err = bench(*options)
    assert exit == 2 and code in err and words in err and not Path("out").exists()


@pytest.mark.parametrize("text, sizes", [
    ("T=1k..4k*2", ("T", [1024, 2048, 4096])), ("T=8..20+6", ("T", [8, 14, 20])), ("H=16,96,16", ("H", [16, 96])),
    ("C=3..10*2", ("C", [3, 6])), ("T=0..2+1", ("T", [0, 1, 2])), ("B=5..5*2", ("B", [5])),
])  # fmt: skip
def test_a_sweep_is_an_axis_and_its_sizes(text, sizes):
    assert read_sweep(text) == sizes
