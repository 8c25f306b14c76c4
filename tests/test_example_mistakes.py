"""Mistakes on the command lines of the examples: each is said and ends the script, before any work."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chunkwise.runner.script import told

EXAMPLES = Path(__file__).parents[1] / "examples"
NO_SCRIPTS = {"output_gate"}
"""A stage."""
SCRIPTS = {f"{path.parent.name}/{path.stem}": path for path in sorted(EXAMPLES.rglob("*.py"))
           if path.stem not in NO_SCRIPTS}  # fmt: skip
OWN_VENV = {"qwen3_next/capture", "qwen3_next/train"}
HERE = SCRIPTS.keys() - (set() if importlib.util.find_spec("transformers") else OWN_VENV)
NEITHER = "nonsense", "0", "-1", "1,x", "1.5", "9" * 30
"""What no option takes, of whatever kind it is."""
TAKES_ANY = {"--out"}
PASS_ON = {"variants/tables"}
"""Their options are those of a command, which refuses its own."""


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """(exit code, stderr) of an example, by its name below examples/."""
    monkeypatch.chdir(tmp_path)

    def run(name, *argv):
        monkeypatch.syspath_prepend(SCRIPTS[name].parent)
        spec = importlib.util.spec_from_file_location(SCRIPTS[name].stem, SCRIPTS[name])
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        try:
            spec.loader.exec_module(module)
            code = module.main(list(argv))
        except SystemExit as end:
            code = end.code
        return code, "".join(capsys.readouterr())

    return run


def test_every_script_is_asked():
    assert {"examples/host_cost", "variants/recall", "qwen3_next/train", "context_parallel/measure"} <= SCRIPTS.keys()


@pytest.mark.parametrize("name", sorted(HERE - PASS_ON))
def test_what_an_option_does_not_take(name, run):
    code, help = run(name, "--help")
    options = re.findall(r"^  (--[\w-]+) [^ ]", help, re.MULTILINE)
    assert code == 0 and (options or "--tiny" in help)
    for option in [each for each in options if each not in TAKES_ANY]:
        for value in NEITHER:
            code, said = run(name, option, value)
            assert code == 2 and "error" in said.splitlines()[-1] + said.splitlines()[0], (option, value, said)


@pytest.mark.parametrize("name, pipeline, code", [
    ("examples/first_call", "nope", "CW101"), ("examples/host_cost", "nope", "CW101"),
    ("examples/memory_by_segments", "nope", "CW101"), ("examples/memory_by_segments", "flash", "CW621"),
    ("examples/first_call", "flash", "CW601"), ("examples/first_call", "gla_decode", "CW601"),
])  # fmt: skip
def test_a_pipeline_that_there_is_not_or_that_does_not_serve(name, pipeline, code, run):
    """Also where it stands behind one that does."""
    found, said = run(name, "linear_attn", pipeline, "--device", "cpu")
    assert found == 2 and said.startswith(f"error[{code}]: "), said


@pytest.mark.parametrize("pipeline, says", [
    ("nope", "error[CW101]: "), ("flash", "error[CW601]: recall.py has no sizes for D, HQ, Sq, and flash wants"),
    ("retention", "error[CW601]: recall.py has no numbers for the law retention_slopes(HV), and retention wants them"),
])  # fmt: skip
def test_what_recall_cannot_train(pipeline, says, run):
    found, said = run("variants/recall", "--pipeline", "simple_gla", pipeline)
    assert found == 2 and said.startswith(says), said


def test_heads_that_do_not_divide(run):
    code, said = run("examples/attention_sweep", "--heads", "3", "--key-heads", "2")
    assert code == 2 and said.endswith("error: 3 heads are no multiple of 2 key heads\n")


@pytest.mark.parametrize("place", ["no/folder.svg", ".", "a.svg/b.svg", "picture.nope", "picture"])
def test_a_picture_that_cannot_be_written(place, run):
    Path("a.svg").touch()
    code, said = run("variants/recall", "--out", place)
    assert code == 2 and f"argument --out: '{place}' " in said


@pytest.mark.parametrize("name, argv", [("measure", ["--tiny"]), ("train", [])])
def test_one_process_where_several_are_needed(name, argv, run, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    code, said = run(f"context_parallel/{name}", *argv)
    assert (code, said) == (2, f"error[CW601]: {name}.py needs several processes, and this one was started alone\n"
                            f"help: torchrun --nproc-per-node 2 examples/context_parallel/{name}.py\n")  # fmt: skip


@pytest.mark.skipif("qwen3_next/train" in HERE, reason="transformers is installed")
@pytest.mark.parametrize("name", sorted(OWN_VENV))
def test_another_venv_than_an_example_needs(name, run):
    code, _ = run(name)
    assert code == "No module named 'transformers'; README.md beside this file says which venv this is for"


def test_options_that_a_command_refuses(run, monkeypatch):
    """tables.py passes them on: what a run of the first variant says, once, and its exit code."""
    document = {"ok": False, "errors": [{"code": "CW604", "message": "there is no workload nope"}]}
    ended = subprocess.CompletedProcess([], 2, json.dumps(document))
    asked = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command) or ended)
    assert run("variants/tables", "--workload", "nope") == (2, "comba.yaml: error[CW604]: there is no workload nope\n")
    assert [each[-2:] for each in asked] == [["--workload", "nope"]]


def raising(error):
    @told
    def main(argv=None):
        raise error

    return main


def test_how_a_script_ends(capsys):
    assert raising(torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"))() == 3
    assert raising(KeyboardInterrupt())() == 130
    assert capsys.readouterr().err == (
        "error[CW703]: OutOfMemoryError: CUDA out of memory. Tried\nhelp: take smaller sizes\ninterrupted\n"
    )
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("name", sorted(HERE - PASS_ON - {"context_parallel/measure", "context_parallel/train",
                                                         "examples/bench_peers", "variants/recall"}))  # fmt: skip
def test_a_gpu_that_there_is_not(name, run):
    assert run(name, "--device", "cuda") == (3, "error[CW701]: --device cuda: this machine has 0 GPUs\n")
