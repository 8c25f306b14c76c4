"""chunkwise tune: child processes that crash, hang and err do not end the search; what it writes is what plans run."""

import json
from pathlib import Path

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.commands import tune
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.main import main, make_parser
from chunkwise.runner.planning import tuned, tuned_file
from chunkwise.runner.planning.tuned import StaleTuning
from chunkwise.runner.reporting.clocks import Timing
from chunkwise.runner.stage_files.source_hash import source_hash
from chunkwise.runner.tuning.candidates import neighbours
from chunkwise.runner.tuning.child import DONE, HUNG, Answer
from chunkwise.runner.tuning.search import is_faster

PACED = '''\
"""Its input, twice, at the pace of its configuration: a kernel in Python, which a wrong one crashes, hangs or errs."""

import os
import time

from chunkwise.stages._contract import Contract, Launch, Launcher, Port

CONTRACT = Contract(inputs={"x": Port("B T HV V")}, outputs={"y": Port("B T HV V")}, flops="B * T * HV * V")


def reference(x):
    return {"y": 2 * x}


class Paced:
    def __getitem__(self, grid):
        return self.run

    def run(self, x, y, BV, num_warps, num_stages):
        if BV == 64:
            os.kill(os.getpid(), 9)
        if BV == 16:
            time.sleep(1000)
        if num_stages == 3:
            raise RuntimeError("out of resource: shared memory\\nmore of it")
        time.sleep(0.02 / num_warps)
        y.copy_((3 if num_stages == 1 else 2) * x)


def configs(axes, device):
    return [{"BV": 32, "num_warps": 4, "num_stages": 2}]


def launch(x, y, *, seqs, config):
    tile = {"BV": config["BV"]}
    return [Launch(Paced(), (1,), {"x": x, "y": y}, tile, config["num_warps"], config["num_stages"])]


LAUNCHERS = [Launcher("triton", launch, configs)]
'''
OP = """\
schema: pipeline/v1
name: op
inputs: {x: B T HV V}
stages: {twice: {use: paced, in: {x: x}}}
outputs: {y: twice.y}
"""
KEY = "paced triton fp32 V=32"
ARGUMENTS = ["tune", "op.yaml", "--stages", "mine", "--dtype", "fp32", "--workload", "tiny", "--patience", "2"]


@pytest.fixture
def paced(tmp_path, monkeypatch):
    """A pipeline in the current folder whose stage obeys its configuration."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "paced.py").write_text(PACED)
    (tmp_path / "op.yaml").write_text(OP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # there is no GPU, and no kernel of Triton's either
    return tmp_path


def searched(*options):
    args = make_parser().parse_args([*ARGUMENTS, *options])
    return tune.tuned(tune.read_job(args, torch.device("cpu"), "interpret"), args)


def test_the_search(paced, monkeypatch, capsys):
    outcome = searched("--tries", "6")
    assert outcome.exit == 0
    (kernel,) = outcome.document["kernels"]
    found = {tuple(each["config"].values()): (each["result"], each["why"]) for each in kernel["tried"]}
    assert kernel["kernel"] == KEY and kernel["tuned"] == {"BV": 32, "num_warps": 8, "num_stages": 2}
    assert kernel["latency_ms"] < kernel["shipped_latency_ms"]
    assert [each[0] for each in found.values()].count("done") == 3
    assert found[16, 4, 2] == ("hung", "no answer within 2 s")
    assert found[64, 4, 2] == ("crashed", "the process ended by SIGKILL")
    assert found[32, 4, 3] == ("failed", "RuntimeError: out of resource: shared memory")
    assert found[32, 4, 1][0] == "wrong" and found[32, 4, 1][1].startswith("y: ")
    assert "tune twice (paced): configuration 7" in capsys.readouterr().err
    text = "\n".join(map(plain, outcome.text))
    for words in ("hung", "ended its process", "failed", "out of budget", "num_warps=8", "CHUNKWISE_TUNED=tuned.yaml"):
        assert words in text
    check_what_runs(paced, monkeypatch)


def check_what_runs(folder, monkeypatch):
    """Plans take what was found, in this process and for this code."""
    monkeypatch.setenv("CHUNKWISE_TUNED", "tuned.yaml")
    (step,), notes = steps(folder)
    assert step.tuned and step.config == {"BV": 32, "num_warps": 8, "num_stages": 2}
    assert notes == ("twice: tuned, BV=32 num_warps=8 num_stages=2",)
    (folder / "mine" / "paced.py").write_text(PACED + "\n\n# changed\n")
    source_hash.cache_clear()
    with pytest.warns(StaleTuning, match="paced has changed since it was tuned: what ships runs"):
        (step,), notes = steps(folder)
    assert not step.tuned and step.config["num_warps"] == 4
    assert notes == ("twice: tuned.yaml was not asked: paced has changed since it was tuned",)


def plain(part) -> str:
    from rich.console import Console

    console = Console(width=200, record=True, file=open("shown.txt", "w"))
    console.print(part)
    return console.export_text()


def steps(folder):
    op = load("op.yaml", backend="interpret", stages=[folder / "mine"])
    plan = op.bind({"x": torch.zeros(1, 4, 2, 32)}).forward_plan()
    return plan.steps, plan.notes


def written(monkeypatch, machine=None, config="{BV: 32, num_warps: 8, num_stages: 2}", key=KEY):
    """A file for this code, read anew."""
    source = source_hash(str(Path("mine/paced.py").resolve()))
    machine = machine or tuned.machine(torch.device("cpu"))
    entry = f'{{config: {config}, ms: 1, shipped_ms: 2, at: "T=4", source: "{source}"}}'
    with open("tuned.yaml", "w") as file:
        file.write(f'schema: tuned/v1\nmachines:\n  "{machine}":\n    "{key}": {entry}\n')
    monkeypatch.setenv("CHUNKWISE_TUNED", "tuned.yaml")
    tuned_file.read_tuned.cache_clear()


@pytest.mark.parametrize("change, note", [
    (dict(machine="NVIDIA H200, triton 3.6.0"), "tuned.yaml has nothing for {here}, but for NVIDIA H200, triton 3.6.0"),
    (dict(config="{BM: 32, num_warps: 8}"),
     "twice: tuned.yaml was not asked: paced has no configuration like BM=32 num_warps=8"),
])  # fmt: skip
def test_what_does_not_hold_here_is_said(change, note, paced, monkeypatch):
    written(monkeypatch, **change)
    here = tuned.machine(torch.device("cpu"))
    with pytest.warns(StaleTuning) as warned:
        (step,), notes = steps(paced)
    assert not step.tuned and notes == (note.format(here=here),)
    said = note.format(here=here).removeprefix("twice: ")
    assert [str(each.message) for each in warned] == [f"{said}: what ships runs; chunkwise tune makes it anew"]


def test_a_run_says_what_is_tuned(paced, monkeypatch, capsys):
    """Here: what a command says of a file that is of no use, once."""
    written(monkeypatch, machine="NVIDIA H200, triton 3.6.0")
    argv = ["run", "op.yaml", "--stages", "mine", "--workload", "tiny", "--backend", "interpret", "--json"]
    assert main(argv) == 0
    said = capsys.readouterr()
    note = f"tuned.yaml has nothing for {tuned.machine(torch.device('cpu'))}, but for NVIDIA H200, triton 3.6.0"
    assert said.err.count(f"note: {note}: what ships runs; chunkwise tune makes it anew\n") == 1
    report = json.loads(said.out)
    assert note in report["notes"] and report["stages"][0]["tuned"] is False
    written(monkeypatch)
    assert main(argv[:-1]) == 0
    assert "│ interpret, tuned │" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["paced triton bf16 V=32", "paced triton fp32 V=64", "paced.vjp triton fp32 V=32"])
def test_other_kernels_are_others(key, paced, monkeypatch):
    written(monkeypatch, key=key)
    (step,), notes = steps(paced)
    assert not step.tuned and notes == ()


@pytest.mark.parametrize("text, error", [
    ("schema: tuned/v2\nmachines: {}\n", "error[CW205]: schema: 'tuned/v2' is not the format"),
    ("schema: tuned/v1\nmachines: {a: {b: {config: {BV: 1.5}, ms: 1, shipped_ms: 1, at: x, source: 0123456789ab}}}\n",
     "error[CW203]: BV is 1.5, and a whole number belongs here"),
    ("schema: tuned/v1\nmachines: {a: {b: {config: {BV: 1}, ms: 1, shipped_ms: 1, at: x}}}\n",
     "error[CW202]: machines.a.b has no key 'source'"),
])  # fmt: skip
def test_a_file_that_is_none(text, error, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned.yaml").write_text(text)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(tune, "kernels", lambda job: [])
    assert main(["tune", "gated_delta"]) == 2
    assert capsys.readouterr().err.startswith(error)


def test_no_file_where_one_is_named(paced, monkeypatch):
    monkeypatch.setenv("CHUNKWISE_TUNED", "gone.yaml")
    with pytest.raises(ChunkwiseError, match="no such file: gone.yaml"):
        steps(paced)


@pytest.mark.parametrize("text, wrong", [(None, "error[CW101]: no such file: own.yaml"), ("schema: x", "error[CW205]")])
def test_a_command_on_a_cpu_reads_the_file_too(text, wrong, tmp_path, monkeypatch, capsys):
    """No kernel asks for it there; who set the variable learns of the mistake, and that it is the variable's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHUNKWISE_TUNED", "own.yaml")
    if text:
        (tmp_path / "own.yaml").write_text(text)
    assert main(["run", "gated_delta", "--axes", "T=8"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(wrong) and "note: the variable CHUNKWISE_TUNED names this file" in told


def test_a_file_is_read_as_it_was_written(tmp_path):
    kept = tuned_file.Tuned("012345678901", {"BV": 64, "WAITING": 0}, 0.25, 0.5, "B=1 T=4")
    machines = {'a "GPU", triton 3.6.0': {KEY: kept, "other": kept}, "b": {KEY: kept}}
    assert tuned_file.parse_tuned(tuned_file.tuned_text(machines), "tuned.yaml") == machines
    assert tuned_file.parse_tuned(tuned_file.tuned_text({}), "tuned.yaml") == {}


def test_what_is_known_of_others_stays(paced, monkeypatch):
    """Of other machines, and of kernels that were not searched; what was and has nothing better goes."""
    other = tuned_file.Tuned("012345678901", {"BV": 64}, 0.25, 0.5, "T=4")
    found = tune.Found(tune.Kernel(KEY, ("twice",), "paced", "mine/paced.py", ()))
    job = tune.read_job(make_parser().parse_args(ARGUMENTS), torch.device("cpu"), "interpret")
    assert tune.merged({KEY: other, "another": other}, [found], job) == {"another": other}


@pytest.mark.parametrize("config, fits", [
    ({"BN": 64, "SPLITS": 4}, {"BN": 64, "SPLITS": 8}),
    ({"BN": 64, "SPLITS": 4, "num_warps": 4}, None),
])  # fmt: skip
def test_what_is_no_choice_follows_the_sizes(config, fits):
    """How many splits, say: they depend on lengths and heads, and so do bits."""
    assert tuned.fitted(config, [{"BN": 32, "SPLITS": 8}, {"BN": 16, "SPLITS": 8}]) == fits


@pytest.mark.parametrize("config, fits", [
    ({"TILE": 16, "WAITING": 1, "num_warps": 8}, True), ({"TILE": 64, "WAITING": 2, "num_warps": 4}, False),
])  # fmt: skip
def test_what_follows_from_a_choice_is_one_of_those_that_ship(config, fits):
    shipped = [{"TILE": 64, "WAITING": 0, "num_warps": 4}, {"TILE": 32, "WAITING": 1, "num_warps": 4}]
    assert tuned.fitted(config, shipped) == (config if fits else None)


SHIPPED = [{"BK": 64, "BK_F32": 32, "P": 128, "num_warps": 8, "num_stages": 1, "num_stages_F32": 5}]


def test_a_step_away():
    half = [{**SHIPPED[0], **change} for change in (
        {"BK": 32}, {"BK": 128}, {"num_warps": 4}, {"num_stages": 2}
    )]  # fmt: skip
    assert neighbours(SHIPPED[0], torch.bfloat16, SHIPPED) == half
    single = [{**SHIPPED[0], **change} for change in (
        {"BK_F32": 16}, {"BK_F32": 64}, {"num_warps": 4}, {"num_stages_F32": 4}
    )]  # fmt: skip
    assert neighbours(SHIPPED[0], torch.float32, SHIPPED) == single


@pytest.mark.parametrize("ours, noise, faster", [(0.98, 0.2, True), (0.995, 0.1, False), (0.9, 6.0, False)])
def test_noise_is_no_gain(ours, noise, faster):
    assert is_faster(timing(1.0, noise), timing(ours, noise)) is faster


@pytest.mark.parametrize("gpu, argv, code, error, help", [
    (False, [], 3, "error[CW701]: tune times kernels on the GPU that is here, and there is none",
     "warmup --arch 90 compiles for one that is elsewhere; what is fastest there only it can say"),
    (True, ["--tries", "0"], 2, "error[CW601]: argument --tries: '0' is not a whole number from 1 to 999999",
     "chunkwise tune --help lists what it takes"),
    (True, ["--stage", "twic"], 2, "error[CW601]: --stage: no kernel is run for 'twic'", "did you mean twice?"),
    (True, ["--out", "gone/t.yaml"], 2, "error[CW601]: gone/t.yaml cannot be written: No such file or directory",
     "name a place that you can write to"),
    (True, ["--axes", "Z=3"], 2, "error[CW602]: --axes: op has no axis Z", "its axes are B, HV, T, V"),
])  # fmt: skip
def test_what_it_refuses(gpu, argv, code, error, help, paced, monkeypatch, capsys):
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr("chunkwise.runner.planning.plan.device_class", lambda device: "sm_90")
    assert main([*ARGUMENTS, *argv]) == code
    assert capsys.readouterr().err == f"{error}\nhelp: {help}\n\n"


class Told:
    """In place of a child process: what is answered to each configuration, and that the best one wins its race."""

    def __init__(self, answers):
        self.answers, self.ended = answers, 0

    def ask(self, order, key=None, config=None):
        if order == "measure":
            return self.answers[config["num_warps"]]
        return Answer(DONE, [timing(2), timing(1)] if order == "race" else None)

    def end(self):
        self.ended += 1


def timing(ms, noise=0.1):
    return Timing(ms, ms, ms, 9, noise)


def test_a_shipped_configuration_that_is_wrong_fails(paced, monkeypatch):
    """And the best of the others is kept."""
    answers = {4: Answer(DONE, "y: off by 1"), 8: Answer(DONE, timing(1)), 2: Answer(HUNG, "no answer within 1 s")}
    child = Told(answers | {1: Answer(DONE, timing(3))})
    monkeypatch.setattr(tune, "Child", lambda *args: child)
    (paced / "mine" / "paced.py").write_text(PACED.replace("2}]", "2}, {'BV': 32, 'num_warps': 8, 'num_stages': 2}]"))
    outcome = searched("--tries", "1")
    (error,), (kernel,) = outcome.errors, outcome.document["kernels"]
    assert outcome.exit == 1 and error.code == "CW804"
    assert error.message == "twice: what ships, BV=32 num_warps=4 num_stages=2, out of budget: y: off by 1"
    assert kernel["tuned"]["num_warps"] == 8 and kernel["shipped_latency_ms"] is None
    assert child.ended == 2 and json.dumps(outcome.document)  # once for what was wrong, once at the end


def test_the_page_on_the_file(capsys):
    assert main(["explain", "tuned", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert [each["key"] for each in page["keys"]] == list(tuned_file.ENTRY.keys)
    assert page["variable"] == "CHUNKWISE_TUNED" and "T" in page["not_in_keys"] and "K" not in page["not_in_keys"]
    assert main(["explain", "tuned"]) == 0
    text = capsys.readouterr().out
    assert all(each["doc"] in text for each in page["keys"])
