"""Options of the command line that would have no effect are refused, and what is left out is said."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
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
    "gradients of the recurrent form": (
        ["verify", "simple_gla", *SMALL, "--mode", "recurrent", "--backward"],
        "--mode recurrent has no gradients: a call that needs them runs the chunked form",
    ),
    "the same when it is timed": (
        ["run", "simple_gla", *SMALL, "--mode", "recurrent", "--backward"],
        "--mode recurrent has no gradients: a call that needs them runs the chunked form",
    ),
    "the backward pass of a stage": (
        ["show", "chunk_o", "--backward"],
        "--backward has no effect on a stage: `chunkwise show chunk_o` says all of its gradient",
    ),
    "a fixed axis that no stage so far has": (
        ["verify", "qwen3_next_gdn", "--until", "gate", "--axes", "C=32"],
        "--axes: qwen3_next_gdn up to gate has no axis C",
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


@pytest.mark.parametrize("more", [{}, {"x": "eight more bytes"}, {"x": "sixteen more bytes here"}])
def test_a_state_of_a_file_wherever_it_starts(document, tmp_path, more):
    """It is written over, so it must start at a multiple of 16 bytes; where it does in a file is nobody's choice."""
    an_op = op("gated_delta_decode")
    given = inputs(an_op, B=3, T=2, H=1, HV=1, K=4, V=4, SLOTS=5)
    save_file(given, tmp_path / "state.safetensors", more)
    code, result = document("verify", "gated_delta_decode", "--inputs", "state.safetensors", "--device", "cpu")
    assert code == 0, result["errors"]


def test_rows_say_that_kernels_are_interpreted():
    an_op = op("simple_gla")
    call = an_op.bind(inputs(an_op, B=1, T=20, H=1, HV=1, K=16, V=16))
    plan = make_plan(call.graph, call.sizes, call.io, "interpret", call.device, call.wanted)
    assert {step.backend for step in plan.steps} == {"interpret"}
    plan = make_plan(call.graph, call.sizes, call.io, "reference", call.device, call.wanted)
    assert {step.backend for step in plan.steps} == {"reference"}


def test_axes_says_that_heads_come_together(capsys):
    assert main(["verify", "--help"]) == 0
    assert "H alone sets HV and HQ too" in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def changed(file, tmp_path):
    """The file with more entries."""

    def write(**more):
        save_file({**load_file(file), **{name: x.clone() for name, x in more.items()}}, tmp_path / file)
        return file

    return write


ONE = torch.ones(1)
UNKNOWN = {
    "a slip of the pen": ({"intial_state": ONE}, "intial_state", "did you mean initial_state?"),
    "of another op": ({"zz": ONE}, "zz", "simple_gla has q, k, v, g, initial_state, scale, cu_seqlens"),
    "an output": ({"expected.oo": ONE}, "expected.oo", None),
    "the word expected": ({"expeced.o": ONE}, "expeced.o", "did you mean expected.o?"),
    "under the name of the op": ({"simple_gla.zz": ONE}, "simple_gla.zz", None),
    "a slip in a shared file": ({"simple_gla.q": ONE, "scal": ONE}, "scal", "did you mean scale?"),
}


@pytest.mark.parametrize("more, key, help", UNKNOWN.values(), ids=UNKNOWN)
def test_an_entry_that_names_nothing_is_refused(document, changed, more, key, help):
    code, result = document("verify", "simple_gla", "--inputs", changed(**more), "--device", "cpu")
    (error,) = result["errors"]
    assert (code, error["code"]) == (2, "CW607")
    assert error["message"] == f"file.safetensors holds {key}, which simple_gla does not have"
    assert help is None or error["help"] == help


def test_a_file_of_several_pipelines(document, changed):
    names = changed(**{"gla.g": ONE, "simple_gla.scale": ONE, "A_log": ONE})
    code, result = document("verify", "simple_gla", "--inputs", names, "--device", "cpu", "--until", "cumsum")
    assert code == 0


def test_the_lengths_of_a_file_pack_its_sequences(document, changed, file):
    held = load_file(file)
    del held["expected.o"], held["initial_state"]
    save_file({**held, "cu_seqlens": torch.tensor([0, 5, 20])}, file)
    code, result = document("verify", "simple_gla", "--inputs", file, "--device", "cpu")
    assert code == 0 and result["verify"]["seqlens"] == [5, 15]
    code, result = document("verify", "simple_gla", "--inputs", file, "--device", "cpu", "--seqlens", "20")
    assert (code, result["errors"][0]["code"]) == (2, "CW601")
    code, result = document("verify", "simple_gla", "--inputs", changed(cu_seqlens=torch.ones(2)), "--device", "cpu")
    assert (code, result["errors"][0]["code"]) == (2, "CW603")


def test_a_param_of_a_file_is_a_number(document, changed):
    code, result = document("verify", "simple_gla", "--inputs", changed(scale=torch.ones(2)), "--device", "cpu")
    assert (code, result["errors"][0]["code"]) == (2, "CW607")


EMPTY = {
    "--inputs": ["verify", "simple_gla", *SMALL, "--inputs", ""],
    "--until": ["verify", "simple_gla", *SMALL, "--until="],
    "--axes": ["verify", "simple_gla", "--axes", ""],
    "--without": ["export", "simple_gla", "--without", ""],
    "--outputs": ["export", "simple_gla", "--outputs", ""],
}


@pytest.mark.parametrize("option", EMPTY)
def test_an_empty_value_is_refused(document, option):
    code, result = document(*EMPTY[option])
    (error,) = result["errors"]
    assert (code, error["code"], error["message"]) == (2, "CW601", f"{option} is given an empty value")


NOTHING = {
    "axes": (["verify", "simple_gla", "--axes", ","], "CW602", "--axes ',' names no axis"),
    "a variable without an axis": (["run", "gla", "--axes", "T=3,,K=8"], "CW602", "--axes: '' is not NAME=SIZE"),
    "an axis past the part": (
        ["run", "gla", "--until", "intra", "--axes", "V=16"], "CW602", "--axes: gla up to intra has no axis V"
    ),
    "outputs": (["export", "simple_gla", "--outputs", ","], "CW601", "--outputs ',' names nothing"),
    "without": (["export", "simple_gla", "--without", " , "], "CW601", "--without ' , ' names nothing"),
    "another alphabet's digits": (
        ["check", "simple_gla", "--axes", "T=\u0663"], "CW602", "--axes: 'T=\u0663' is not NAME=SIZE"
    ),
    "another alphabet's lengths": (
        ["verify", "simple_gla", "--seqlens", "\u0663"], "CW603", "--seqlens '\u0663' is not a list of lengths"
    ),
    "a second CPU": (["verify", "simple_gla", "--device", "cpu:3"], "CW601", "--device cpu:3: there is one cpu"),
    "a folder": (["verify", "simple_gla", "--device", "cpu", "--inputs", "/tmp"], "CW101", "/tmp is a folder"),
}  # fmt: skip


@pytest.mark.parametrize("argv, code, message", NOTHING.values(), ids=NOTHING)
def test_a_value_that_says_nothing_is_refused(document, argv, code, message):
    status, result = document(*argv)
    (error,) = result["errors"]
    assert (status, error["code"], error["message"]) == (2, code, message)


@pytest.mark.parametrize("axis", ["N", "NT"])
def test_a_file_fixes_no_axis_that_follows(document, axis):
    text = (Path(__file__).parents[1] / "pipelines" / "simple_gla.yaml").read_text()
    Path("own.yaml").write_text(text.replace("axes: {C: 64}", f"axes: {{C: 64, {axis}: 7}}"))
    code, result = document("check", "own.yaml")
    (error,) = result["errors"]
    assert (code, error["code"]) == (2, "CW204") and "follow from the other sizes" in error["help"]


ATTENTION = ("verify", "flash", "--axes", "B=1,Sq=6,Sk=9,HQ=1,H=1,D=8,DV=8", "--device", "cpu")


def test_params_of_a_call(document):
    """They reach both what is verified and the definition: the same inputs, other numbers, nothing out of budget."""
    plain, windowed = (document(*ATTENTION, *more) for more in ((), ("--params", "window=2, softcap=1e1")))
    assert plain[0] == windowed[0] == 0
    assert plain[1]["verify"]["outputs"] != windowed[1]["verify"]["outputs"]


@pytest.mark.parametrize("text, message, help", [
    ("windw=2", "--params: the pipeline has no param windw", "did you mean window?"),
    ("window", "--params: 'window' is not NAME=NUMBER", "write numbers as window=64,scale=0.5"),
    ("window=1,window=2", "--params gives window twice", None),
])  # fmt: skip
def test_params_that_mean_nothing(document, text, message, help):
    code, found = document(*ATTENTION, "--params", text)
    (error,) = found["errors"]
    assert (code, error["message"], error.get("help")) == (2, message, help)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_several_processes_that_would_each_do_all(command, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([command, "gated_delta", "--axes", "T=20,H=1"]) == 2
    told = capsys.readouterr().err
    assert f"error[CW601]: {command} " in told and "torchrun started 2: each would do all of it" in told


@pytest.mark.parametrize("argv, T", [
    (["run", "gated_delta_decode"], 1),
    (["run", "gated_delta_decode", "--axes", "T=3"], 3),
    (["run", "gated_delta_decode", "--workload", "tiny"], 256),
    (["run", "simple_gla"], 256),
])  # fmt: skip
def test_a_step_is_timed_at_one_token_unless_sizes_are_named(document, argv, T):
    code, result = document(*argv)
    assert code == 0 and result["axes"]["T"] == T
