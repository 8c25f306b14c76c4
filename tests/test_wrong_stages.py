"""verify must be able to fail: kernels that are wrong in one way each, and the stage that it names."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from support.ops import inputs, op
from support.stand_ins import ByReference, op_with_stand_ins, taking

from chunkwise.runner.calling.function import Op
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.runner.verification.verify import verify

SIZES = dict(B=1, T=40, H=1, HV=2, K=16, V=16)


@pytest.fixture
def kernels(monkeypatch):
    """pipeline, stage id, output, spoil -> the op with stand-in kernels, that one spoiled."""
    return partial(op_with_stand_ins, monkeypatch)


def row_of_zeros(x, heads):
    row = x.select(heads, -1)
    while row.dim() > 1:
        row = row[min(3, row.shape[0] - 1)]
    row.zero_()
    return x


def nan_in_one_place(x, heads):
    x.view(-1)[x.numel() // 2] = torch.nan
    return x


def wrong_head(x, heads):
    """The last head reads what belongs to the first."""
    x.select(heads, -1).copy_(x.select(heads, 0).clone())
    return x


SPOILS = {
    "sign": lambda x, heads: -x,
    "row of zeros": row_of_zeros,
    "nan": nan_in_one_place,
    "wrong head": wrong_head,
    "one row late": lambda x, heads: x.roll(1, dims=heads - 1 if heads == 2 else -1),
    "columns reversed": lambda x, heads: x.flip(-1),
    "bfloat16": lambda x, heads: x.bfloat16().float(),
    "one in a thousand off": lambda x, heads: x * 1.001,
}
PLACES = [
    ("cumsum", "y"), ("kkt", "A"), ("solve", "Ai"), ("wy", "w"), ("wy", "u"), ("scan", "h"), ("scan", "v_new"),
    ("scan", "final_state"), ("out", "o"),
]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("stage,port", PLACES)
def test_the_wrong_stage_is_named_first(kernels, stage, port, spoil):
    heads = 1 if port == "final_state" else 2
    an_op = kernels("gated_delta", stage, port, lambda x: SPOILS[spoil](x, heads)).with_axes({"C": 32}).until(stage)
    result = verify(an_op, inputs(an_op, **SIZES))
    assert not result.ok
    assert (result.first_bad.id, result.first_bad.value) == (stage, port)


@pytest.mark.parametrize("port", ["h", "final_state"])
def test_swapped_state_axes_are_named(kernels, port):
    """K = V, so that shapes say nothing."""
    an_op = kernels("simple_gla", "scan", port, lambda x: x.transpose(-1, -2))
    result = verify(an_op, inputs(an_op, **SIZES))
    assert (result.first_bad.id, result.first_bad.value) == ("scan", port)


def test_an_output_that_is_not_written_is_nan(kernels):
    class Idle(ByReference):
        def run(self, tensors, named, num_warps, num_stages):
            pass

    an_op = kernels("simple_gla")
    stage = an_op.stages["chunk_o"]
    idle = Idle(stage)
    launcher = replace(stage.launchers[0], launch=taking(idle.launch, ["C", "scale", "seqs", "config"]))
    an_op = Op(an_op.spec, {**an_op.stages, "chunk_o": replace(stage, launchers=(launcher,))}, "interpret")
    result = verify(an_op, inputs(an_op, **SIZES))
    assert result.first_bad.id == "out" and "not finite" in result.first_bad.verdict.why


@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_right_kernels_pass(kernels, name):
    an_op = kernels(name)
    result = verify(an_op, inputs(an_op, **SIZES))
    assert result.ok, result.first_bad
    # compiled kernels do not run in this process: what was verified are the stand-ins
    assert {row.backend for row in result.rows} == {"interpret"}


WRONG_INPUTS = {
    "values too large": lambda v, g, S: (1.001 * v, g, S),
    "decay too weak": lambda v, g, S: (v, 0.999 * g, S),
    "initial state transposed": lambda v, g, S: (v, g, S.transpose(-1, -2)),
    "no initial state": lambda v, g, S: (v, g, None),
}


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("wrong", WRONG_INPUTS)
def test_a_wrong_reference_fails_against_the_definition(wrong, io):
    """Kernel and reference agree on the wrong thing, by less than bfloat16 rounds; the definition does not."""
    stages = find_stages()
    stage = stages["chunk_h"]

    def reference(k, v, g, g_gamma, initial_state, *, C):
        v, g, initial_state = WRONG_INPUTS[wrong](v, g, initial_state)
        return stage.reference(k, v, g, g_gamma, initial_state, C=C)

    an_op = Op(op("simple_gla").spec, {**stages, "chunk_h": replace(stage, reference=reference)}, "reference")
    result = verify(an_op, inputs(an_op, io, **SIZES | dict(T=70)))
    assert not result.ok
    assert result.first_bad.id == "op" and result.first_bad.against == "definition"


STAGE = '''
"""Twice its input."""

import triton
import triton.language as tl

from chunkwise.stages._contract import Contract, Launch, Launcher, Port

CONTRACT = Contract(inputs={"x": Port("B T HV")}, outputs={"y": Port("B T HV")}, flops="B * T * HV")


def reference(x):
    return {"y": 2 * x}


@triton.jit(do_not_specialize=["n"])
def twice_kernel(x, y, n, BN: tl.constexpr):
    o = tl.program_id(0) * BN + tl.arange(0, BN)
    tl.store(y + o, FACTOR * tl.load(x + o, mask=o < n, other=0.0), mask=o < n)


def launch(x, y, *, seqs, config):
    n = x.numel()
    return [Launch(twice_kernel, (triton.cdiv(n, 32),), dict(x=x, y=y, n=n), dict(BN=32))]


LAUNCHERS = [Launcher("triton", launch, lambda axes, device: [{}])]
'''
PIPELINE = """
schema: pipeline/v1
name: quadruple
inputs: {x: B T HV}
stages:
  one: {use: twice, in: {x: x}}
  two: {use: twice, in: {x: one.y}}
outputs: {y: two.y}
"""


def test_the_command_line_names_a_wrong_stage_of_a_users_folder(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "twice.py").write_text(STAGE.replace("FACTOR", "2.001"))
    (tmp_path / "quadruple.yaml").write_text(PIPELINE)
    command = [sys.executable, "-m", "chunkwise.runner", "verify", "quadruple.yaml", "--stages", "mine", "--json",
               "--backend", "interpret", "--axes", "B=1,T=9,HV=8"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment())
    document = json.loads(done.stdout)
    assert done.returncode == 1 and not document["ok"]
    assert document["errors"][0]["code"] == "CW801"
    assert "stage one (twice), output y, is the first out of budget" in document["errors"][0]["message"]


def environment():
    """PYTHONPATH entries are made absolute, for a process elsewhere."""
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
