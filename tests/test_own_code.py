"""What a stage of one's own does wrong is said at its line, and never ends a command as if all was well."""

import json
import sys
from pathlib import Path

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.main import main

STAGE = '''\
"""Its input, twice."""

import os, sys, torch
from chunkwise.stages._contract import Contract, Launcher, Port

CONTRACT = Contract(inputs={"x": Port("B T HV")}, outputs={"y": Port("B T HV")}, flops="B * T * HV")


def reference(x):
    return {"y": 2 * x}


def vjp(d_y, *, needs):
    return {"x": 2 * d_y}


def when(axes, device):
    return None


def configs(axes, device):
    return [{}]


def launch(x, y, *, seqs, config):
    return []


LAUNCHERS = (Launcher("double", launch, configs, when),)
'''
PIPELINE = """\
schema: pipeline/v1
name: op
inputs: {x: B T HV}
definition: {step: [y = 2 * x]}
stages: {one: {use: twice, in: {x: x}}}
outputs: {y: one.y}
"""
VERIFY = ("verify", "op.yaml", "--stages", ".", "--axes", "B=1,T=3,HV=2", "--device", "cpu")


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """(exit code, stdout, stderr) of a command line, with one part of the stage file replaced."""
    monkeypatch.chdir(tmp_path)
    Path("op.yaml").write_text(PIPELINE)

    def run(old, new, *argv):
        assert STAGE.count(old) == 1
        Path("twice.py").write_text(STAGE.replace(old, new))
        return main(list(argv)), *capsys.readouterr()

    return run


RAISES = {
    "a reference that exits": ('    return {"y": 2 * x}', "    sys.exit(0)", "one: reference of twice", 10),
    "a vjp that exits": ('    return {"x": 2 * d_y}', "    raise SystemExit", "one.vjp: vjp of twice", 14),
    "no Exception": ('    return {"y": 2 * x}', "    raise BaseException", "one: reference of twice", 10),
    "an iteration that stops": ('    return {"y": 2 * x}', "    next(iter([]))", "one: reference of twice", 10),
}


@pytest.mark.parametrize("old, new, who, line", RAISES.values(), ids=RAISES)
def test_what_a_stage_raises(command, old, new, who, line):
    code, out, err = command(old, new, *VERIFY, "--backward")
    assert (code, out) == (2, "") and f"error[CW506]: {who} failed\n  --> twice.py:{line}:5\n" in err
    code, out, _ = command(old, new, *VERIFY, "--backward", "--json")
    assert (code, [each["code"] for each in json.loads(out)["errors"]]) == (2, ["CW506"])


LAUNCHER = {
    "when": ("    return None", "    1 / 0", 18),
    "configs": ("    return [{}]", "    sys.exit(0)", 22),
    "launch": ("    return []", "    raise KeyError(1)", 26),
}


@pytest.mark.parametrize("field", LAUNCHER)
def test_what_a_launcher_raises(command, field, monkeypatch):
    old, new, line = LAUNCHER[field]
    monkeypatch.setattr("chunkwise.runner.planning.plan.require_triton", lambda backend: None)
    monkeypatch.setattr("chunkwise.runner.main.interpret_here", lambda argv: None)
    code, out, err = command(old, new, *VERIFY, "--backend", "interpret")
    assert (code, out) == (2, "")
    assert f"error[CW506]: one: {field} of double of twice failed\n  --> twice.py:{line}:5\n" in err


def test_a_launcher_that_raises_is_said_by_show(command):
    code, out, err = command("    return None", "    1 / 0", "show", "twice", "--stages", ".")
    assert (code, out) == (2, "") and err.startswith("error[CW506]: when of double of twice failed\n")


EXTRA = {
    "reference": ('{"y": 2 * x}', '{"y": 2 * x, "z": x}', "gives z, which the contract does not have", "it has y"),
    "vjp": ('{"x": 2 * d_y}', '{"x": 2 * d_y, "z": d_y}', "gives z, which the contract does not have", "it has x"),
}


@pytest.mark.parametrize("old, new, message, help", EXTRA.values(), ids=EXTRA)
def test_a_result_too_many(command, old, new, message, help):
    code, _, err = command(old, new, *VERIFY, "--backward")
    assert code == 2 and "error[CW506]" in err and message in err and f"help: {help}\n" in err
    x = torch.ones(1, 3, 2, requires_grad=True)
    with pytest.raises(ChunkwiseError, match=message):
        load("op.yaml", stages=["."])(x=x).y.sum().backward()


def test_an_async_reference(command, recwarn):
    code, _, err = command("def reference", "async def reference", *VERIFY)
    assert code == 2 and not recwarn.list
    assert err.startswith("error[CW503]: twice: reference is async, and nothing awaits it\n --> twice.py:9:11\n")


@pytest.mark.parametrize("old, new", [
    ('    return {"y"', '    print("noise")\n    return {"y"'), ("\nCONTRACT", '\nprint("noise")\nCONTRACT'),
], ids=["in its reference", "at import"])  # fmt: skip
def test_what_a_stage_prints_is_no_result(command, old, new):
    code, out, err = command(old, new, *VERIFY, "--json")
    assert code == 0 and json.loads(out)["ok"] and "noise\n" in err


def test_a_stage_that_switches_autograd_off(command):
    assert command('    return {"y"', '    torch.set_grad_enabled(False)\n    return {"y"', *VERIFY)[0] == 0
    load("op.yaml", stages=["."])(x=torch.ones(1, 3, 2))
    assert torch.is_grad_enabled()


def test_an_exit_that_nobody_meant_is_a_fault(command, monkeypatch):
    monkeypatch.setattr("chunkwise.runner.commands.verify.verify", lambda *args, **named: sys.exit(0))
    code, out, err = command("2 * x", "2 * x", *VERIFY)
    assert (code, out) == (4, "") and "error[CW901]: SystemExit: 0\n" in err
