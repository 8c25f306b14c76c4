"""Proton: a scope for each stage, with its FLOPs and bytes."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from support.ops import inputs, op

from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.graphs.flops import flops
from chunkwise.runner.main import main
from chunkwise.runner.reporting.proton import RUNS, scopes, started
from chunkwise.runner.reporting.timing import moved_bytes, passes

proton = pytest.importorskip("triton.profiler")

SIZES = dict(B=1, T=20, H=1, HV=2, K=16, V=16)


def test_every_step_runs_inside_a_scope_of_its_own_with_its_counts(monkeypatch):
    seen, inside = {}, []

    @contextmanager
    def scope(name, metrics=None):
        seen[name] = metrics
        inside.append(name)
        yield
        inside.pop()

    monkeypatch.setattr(proton, "scope", scope)
    an_op = op("simple_gla")
    plans, run_all = passes(an_op.bind(inputs(an_op, **SIZES)), backward=True)
    watched = scopes(plans[0])
    ran = []
    run_all(lambda step, run, outputs: watched(step, lambda: (ran.append(list(inside)), run()), outputs))
    steps = {step.node.id: (plan, step) for plan in plans for step in plan.steps}
    assert ran == [[id] for id in steps] and seen.keys() == steps.keys()
    for id, (plan, step) in steps.items():
        assert seen[id] == {"flops": flops(step.node, plan.sizes), "bytes": moved_bytes(plan, step)}


def test_without_a_gpu_it_is_refused_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "simple_gla", "--proton", "--device", "cpu", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "CW701"
    assert not (tmp_path / "out").exists()


def test_another_profiler_in_the_process_is_told_of(monkeypatch):
    def start(file):
        raise RuntimeError("Failed to execute cuptiSubscribe with error 39")

    monkeypatch.setattr(proton, "start", start)
    with pytest.raises(ChunkwiseError) as refused:
        started("file")
    (found,) = refused.value.diagnostics
    assert found.code == "CW702" and "cuptiSubscribe" in found.message and "torch.profiler" in found.help


@pytest.mark.gpu
def test_the_file_has_every_stage_with_its_rates(tmp_path):
    """In a process of its own: torch.profiler, which other tests start, keeps this one's only place."""
    axes = dict(B=1, T=256, H=2, HV=2, K=64, V=64)
    options = ["--proton", "--dtype", "bf16", "--axes", ",".join(f"{axis}={n}" for axis, n in axes.items())]
    command = [sys.executable, "-m", "chunkwise.runner", "run", "simple_gla", *options, "--out", tmp_path]
    subprocess.run(command, check=True)
    (file,) = tmp_path.rglob("proton.hatchet")
    tree, *_ = json.loads(file.read_text())
    (whole,) = tree["children"]
    found = {child["frame"]["name"]: child for child in whole["children"]}
    an_op = op("simple_gla", backend="triton")
    plan = an_op.bind(inputs(an_op, torch.bfloat16, device="cuda", **axes)).forward_plan()
    assert found.keys() == set(an_op.whole.nodes)
    for step in plan.steps:
        metrics = found[step.node.id]["metrics"]
        assert metrics["flops"] == pytest.approx(RUNS * flops(step.node, plan.sizes))
        assert metrics["bytes"] == pytest.approx(RUNS * moved_bytes(plan, step))
        assert found[step.node.id]["children"], "no kernel was seen"
