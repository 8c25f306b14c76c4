"""Options of the command line that would have no effect are refused, and what is left out is said."""

import json
from pathlib import Path

import pytest
from safetensors.torch import save_file
from support.ops import inputs, op

from chunkwise.runner.main import main
from chunkwise.runner.planning.plan import make_plan

REAL = str(Path(__file__).parents[1] / "examples" / "qwen3_next" / "gdn_layer.safetensors")
SMALL = ("--axes", "B=1,T=20,K=16,V=16,H=1,HV=1", "--device", "cpu")
STAGE = '''"""Twice."""
from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K")})


def reference(x):
    return {"y": 2 * x}
'''


@pytest.fixture
def document(capsys, tmp_path, monkeypatch):
    """(exit code, the JSON document) of a command line."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        code = main([*argv, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


BUDGET = "--memory-budget has no effect without --backward: it is what a call may keep for that"
WITHOUT_EFFECT = {
    "a budget for no backward pass": (["verify", "simple_gla", *SMALL, "--memory-budget", "3"], BUDGET),
    "the same for run": (["run", "simple_gla", *SMALL, "--memory-budget", "3"], BUDGET),
    "a seed beside a file": (
        ["verify", "gated_delta", "--inputs", REAL, "--seed", "3"],
        "--seed 3 has no effect beside --inputs: the file's tensors are taken as they are",
    ),
    "the backward pass of a stage": (
        ["show", "chunk_o", "--backward"],
        "--backward has no effect on a stage: `chunkwise show chunk_o` says all of its gradient",
    ),
    "a fixed axis that no stage so far has": (
        ["verify", "qwen3_next_gdn", "--until", "gate", "--axes", "C=32"],
        "--axes: qwen3_next_gdn has no axis C",
    ),
}


@pytest.mark.parametrize("argv, message", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_an_option_without_an_effect_is_refused(document, argv, message):
    code, result = document(*argv)
    (error,) = result["errors"]
    assert (code, error["message"]) == (2, message) and error["help"]


def test_a_fixed_axis_that_the_part_has_is_taken(document):
    assert document("graph", "gated_delta", "--until", "kkt", "--axes", "C=32,T=64", "--out", "-")[0] == 0


@pytest.mark.parametrize("argv", [
    ["gated_delta", "nosuch"],
    ["gated_delta", "--axes", "T=40", "nosuch"],
    ["--axes", "T=40", "gated_delta", "nosuch"],
], ids=["after", "between", "before"])  # fmt: skip
def test_options_may_stand_anywhere(document, argv):
    code, result = document("check", *argv)
    assert code == 2 and [each["ok"] for each in result["pipelines"]] == [True, False]
    assert [each["message"] for each in result["errors"]] == ["there is no pipeline nosuch"]


def test_show_of_a_stage_of_ones_own(document, tmp_path):
    (tmp_path / "silu.py").write_text(STAGE)
    code, result = document("show", "silu")
    assert code == 2 and result["errors"][0]["help"].endswith("--stages DIR brings in stages of your own")
    assert document("show", "silu", "--stages", ".")[0] == 0


@pytest.fixture
def file(tmp_path):
    """Inputs of simple_gla in float32 with the output that is expected of them."""
    an_op = op("simple_gla")
    given = {name: x for name, x in inputs(an_op, B=1, T=20, H=1, HV=1, K=16, V=16).items() if x is not None}
    save_file({**given, "expected.o": an_op(**given).o}, tmp_path / "file.safetensors")
    return "file.safetensors"


@pytest.mark.parametrize("options, compared, left_out", [
    ([], ["o"], None),
    (["--dtype", "bf16"], [], "what it expects is for its fp32 inputs and is not compared with bf16 results"),
    (["--until", "out"], [], "what it expects is of the whole op and is not compared"),
], ids=["all of it", "another dtype", "a part"])  # fmt: skip
def test_what_an_inputs_file_expects_is_compared_or_said_to_be_left_out(document, file, options, compared, left_out):
    code, result = document("verify", "simple_gla", "--inputs", file, "--device", "cpu", *options)
    assert code == 0 and {each["output"] for each in result["verify"]["expected"]} == set(compared)
    assert result["notes"] == ([f"{file}: {left_out}"] if left_out else [])


def test_rows_say_that_kernels_are_interpreted():
    an_op = op("simple_gla")
    call = an_op.bind(inputs(an_op, B=1, T=20, H=1, HV=1, K=16, V=16))
    plan = make_plan(call.graph, call.sizes, call.io, "interpret", call.device, call.wanted)
    assert {step.backend for step in plan.steps} == {"interpret"}
    plan = make_plan(call.graph, call.sizes, call.io, "reference", call.device, call.wanted)
    assert {step.backend for step in plan.steps} == {"reference"}


def test_axes_says_that_heads_come_together(capsys):
    assert main(["verify", "--help"]) == 0
    assert "H alone sets HV too" in " ".join(capsys.readouterr().out.split())
