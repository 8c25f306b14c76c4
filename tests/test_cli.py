"""The command line: exit codes, one JSON document on stdout whatever happens, errors on stderr, never a traceback."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chunkwise.runner import main as main_module
from chunkwise.runner.main import main
from chunkwise.runner.reporting import outcome

SMALL = ("--axes", "T=20,K=16,V=24,H=1,HV=2", "--device", "cpu")
ERROR_KEYS = {"code", "message", "file", "line", "column", "help"}
PIPELINES = Path(__file__).resolve().parents[1] / "pipelines"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def chunkwise(capsys):
    """(exit code, stdout, stderr) of a command line."""

    def run(*argv):
        code = main([str(each) for each in argv])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def document(chunkwise):
    """(exit code, the JSON document) of a command line; stdout holds nothing else."""

    def run(*argv):
        code, out, _ = chunkwise(*argv, "--json")
        result = json.loads(out)
        assert result["ok"] == (code == 0) and isinstance(result["errors"], list)
        assert all(ERROR_KEYS <= error.keys() for error in result["errors"])
        return code, result

    return run


def process(*argv, **how):
    """A command line in a process of its own."""
    words = [sys.executable, "-m", "chunkwise.runner", *argv]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | how.pop("env", {})
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **how)


WRONG = (PIPELINES / "gated_delta.yaml").read_text().replace("h: scan.h, g: cumsum.y", "h: scan.h, g: g")


def test_the_raw_gate_in_place_of_its_sum(document, here):
    """The acceptance test of units: exit 2, the right place, both units, and the stage that converts."""
    (here / "wrong.yaml").write_text(WRONG)
    code, result = document("check", "wrong.yaml")
    (error,) = result["errors"]
    line = WRONG.splitlines()[error["line"] - 1]
    assert (code, error["code"], error["file"]) == (2, "CW304", "wrong.yaml")
    assert line.lstrip().startswith("out:") and line[error["column"] - 4 : error["column"] + 1] == "g: g}"
    for part in ("log_decay/log2/chunk_sum", "log_decay/ln/token"):
        assert part in error["message"]
    assert "chunk_local_cumsum" in error["help"]


REFUSED = {
    "an unknown command": (["rum"], 2, "CW601", "argument COMMAND: invalid choice: 'rum'"),
    "no pipeline": (["run"], 2, "CW601", "the following arguments are required: PIPE"),
    "an unknown option": (["run", "gated_delta", "--tokens", "3"], 2, "CW601", "unrecognized arguments: --tokens 3"),
    "an abbreviated option": (["run", "gated_delta", "--ax", "T=3"], 2, "CW601", "unrecognized arguments: --ax T=3"),
    "no such pipeline": (["run", "gated_dleta"], 2, "CW101", "there is no pipeline gated_dleta"),
    "no such file": (["check", "x/y.yaml"], 2, "CW101", "there is no pipeline x/y.yaml"),
    "axes without a size": (["run", "gated_delta", "--axes", "T"], 2, "CW602", "--axes: 'T' is not NAME=SIZE"),
    "axes with a negative size": (
        ["run", "gated_delta", "--axes", "T=-5"],
        2,
        "CW602",
        "--axes: 'T=-5' is not NAME=SIZE",
    ),
    "axes twice": (["run", "gated_delta", "--axes", "T=1,T=2"], 2, "CW602", "--axes gives T twice"),
    "an unknown axis": (["run", "gated_delta", "--axes", "Q=2"], 2, "CW602", "--axes: gated_delta has no axis Q"),
    "an axis that follows": (
        ["check", "gated_delta", "--axes", "NT=2"],
        2,
        "CW602",
        "--axes: NT, the number of chunks, follows from the other sizes",
    ),
    "a chunk length of 0": (
        ["run", "gated_delta", "--axes", "C=0"],
        2,
        "CW602",
        "C = 0: the size of an axis is a whole number from 1 to 999999999",
    ),
    "a size of eleven digits": (
        ["run", "gated_delta", "--axes", "T=99999999999"],
        2,
        "CW602",
        "--axes: T=99999999999: a size has at most nine digits",
    ),
    "heads that do not divide": (
        ["run", "gated_delta", "--axes", "H=3,HV=4"],
        2,
        "CW306",
        "HV % H == 0 does not hold for H = 3, HV = 4, and kkt (chunk_scaled_dot_kkt) requires it",
    ),
    "no heads": (
        ["check", "gated_delta", "--axes", "H=0,HV=4"],
        2,
        "CW306",
        "HV % H == 0 has no value (division by zero) for H = 0, HV = 4, and kkt (chunk_scaled_dot_kkt) requires it",
    ),
    "no key dimension": (
        ["run", "gated_delta", "--axes", "K=0"],
        2,
        "CW405",
        "the param scale: division by zero in K ** -0.5, for K = 0",
    ),
    "lengths that are none": (
        ["run", "gated_delta", "--seqlens", "3,x"],
        2,
        "CW603",
        "--seqlens '3,x' is not a list of lengths",
    ),
    "empty lengths": (["run", "gated_delta", "--seqlens", ","], 2, "CW603", "--seqlens ',' is not a list of lengths"),
    "packed batch rows": (
        ["run", "gated_delta", "--seqlens", "3,5", "--axes", "B=2"],
        2,
        "CW603",
        "packed sequences need B = 1, here B = 2",
    ),
    "lengths past the end": (
        ["verify", "gated_delta", "--seqlens", "3,5", "--axes", "T=4"],
        2,
        "CW603",
        "the sequences have 8 tokens in all, the tensors have T = 4",
    ),
    "an unknown workload": (["run", "gated_delta", "--workload", "tinny"], 2, "CW606", "there is no workload tinny"),
    "an unknown dtype": (
        ["run", "gated_delta", "--dtype", "fp8"],
        2,
        "CW601",
        "argument --dtype: invalid choice: 'fp8'",
    ),
    "an unknown device": (["run", "gated_delta", "--device", "gpu"], 2, "CW601", "--device 'gpu' is not a device"),
    "another kind of device": (
        ["run", "gated_delta", "--device", "meta"],
        2,
        "CW601",
        "--device meta: devices are cpu and cuda",
    ),
    "a seed that is none": (
        ["run", "gated_delta", "--seed", "-3"],
        2,
        "CW601",
        "argument --seed: '-3' is not a whole number",
    ),
    "an unknown stage to stop at": (
        ["run", "gated_delta", "--until", "kkk"],
        2,
        "CW601",
        "gated_delta has no stage kkk",
    ),
    "a folder of stages that is none": (
        ["check", "gated_delta", "--stages", "nowhere"],
        2,
        "CW505",
        "no such folder of stages: nowhere",
    ),
    "no inputs file": (
        ["verify", "gated_delta", "--inputs", "x.safetensors"],
        2,
        "CW101",
        "there is no file x.safetensors",
    ),
}


@pytest.mark.parametrize("argv, exit_code, code, message", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(chunkwise, document, argv, exit_code, code, message):
    status, out, err = chunkwise(*argv)
    assert (status, out) == (exit_code, "")
    assert err.startswith(f"error[{code}]: {message}") and "Traceback" not in err
    status, result = document(*argv)
    assert status == exit_code and result["errors"][0]["code"] == code
    assert result["errors"][0]["message"].startswith(message)


HINTS = {
    ("rum",): "did you mean run?",
    ("run", "gated_delta", "--backend", "tritn"): "did you mean triton?",
    ("run", "gated_delta", "--workload", "tinny"): "did you mean tiny?",
    ("run", "gated_delta", "--axes", "hv=4"): "did you mean HV?",
    ("run", "gated_delta", "--until", "scann"): "did you mean scan?",
    ("run", "simple_gal"): "did you mean simple_gla?",
    ("run", "gated_delta", "--backwrd"): "did you mean --backward?",
    ("run", "gated_delta", "--tokens", "3"): "chunkwise run --help lists what it takes",
    ("run", "gated_delta", "--dtype", "x"): "chunkwise run --help lists what it takes",
}


@pytest.mark.parametrize("argv", HINTS, ids=" ".join)
def test_hints(document, argv):
    assert document(*argv)[1]["errors"][0]["help"] == HINTS[argv]


@pytest.mark.parametrize("command", ["run", "verify"])
def test_no_gpu(document, command, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    code, result = document(command, "gated_delta", "--backend", "triton")
    assert (code, result["errors"][0]["code"]) == (3, "CW701")
    assert result["errors"][0]["message"] == "the triton back end needs a GPU, and there is none"
    code, result = document(command, "gated_delta", "--device", "cuda:1")
    assert (code, result["errors"][0]["message"]) == (3, "--device cuda:1: this machine has 0 GPUs")


@pytest.mark.parametrize("axes", ["K=300,V=24,T=20,H=1,HV=1", "C=40,K=16,V=24,T=50,H=1,HV=1"])
def test_the_reference_takes_any_size(document, axes):
    assert document("verify", "gated_delta", "--axes", axes, "--device", "cpu")[0] == 0


RUN_KEYS = {"ok", "pipeline", "stages", "sum_of_stages_ms", "end_to_end_ms", "verify", "environment", "errors"}
STAGE_KEYS = {"id", "stage", "backend", "latency_ms", "share_pct"}


def test_the_document_of_run(document, here):
    code, result = document("run", "gated_delta", *SMALL, "--out", "reports")
    assert code == 0 and RUN_KEYS <= result.keys() and result["errors"] == []
    assert [stage["id"] for stage in result["stages"]] == ["cumsum", "kkt", "solve", "wy", "scan", "out"]
    for stage in result["stages"]:
        assert STAGE_KEYS <= stage.keys() and stage["latency_ms"] > 0 and stage["backend"] == "reference"
    total = sum(stage["latency_ms"] for stage in result["stages"])
    assert result["sum_of_stages_ms"] == pytest.approx(total) and result["end_to_end_ms"] > 0
    assert sum(stage["share_pct"] for stage in result["stages"]) == pytest.approx(100)
    assert result["verify"]["ok"] and result["verify"]["outputs"].keys() == {"o", "final_state"}
    for output in result["verify"]["outputs"].values():
        assert 0 < output["rel_l2_err"] <= output["budget"]
    assert result["environment"]["torch"]
    folder = here / "reports" / "gated_delta"
    assert json.loads((folder / "report.json").read_text()) == result
    assert {file.name for file in folder.iterdir()} <= {"report.json", "graph.svg", "graph.dot"}
    assert sorted(result["files"]) == sorted(f"reports/gated_delta/{file.name}" for file in folder.iterdir())


def test_progress_goes_to_stderr_and_the_table_to_stdout(chunkwise):
    code, out, err = chunkwise("run", "simple_gla", *SMALL)
    assert code == 0 and "end to end" in out and "verified: " in out and "time scan" not in out
    assert {"verify scan", "time scan", "time the whole op"} <= set(err.splitlines())


def test_until_a_stage(document):
    code, result = document("run", "gated_delta", "--axes", "T=20,K=16", "--device", "cpu", "--until", "solve")
    assert code == 0 and [stage["id"] for stage in result["stages"]] == ["cumsum", "kkt", "solve"]
    assert result["verify"]["outputs"].keys() == {"Ai"}


def test_the_same_seed_gives_the_same_numbers(document):
    def errors(seed):
        verified = document("verify", "simple_gla", *SMALL, "--seed", seed)[1]["verify"]
        return [row["rel_l2_err"] for row in verified["stages"]]

    assert errors(3) == errors(3) != errors(4)


def test_the_default_dtype_of_a_cpu_and_another(document):
    assert document("verify", "simple_gla", *SMALL)[1]["verify"]["dtype"] == "fp32"
    assert document("verify", "simple_gla", *SMALL, "--dtype", "bf16")[1]["verify"]["dtype"] == "bf16"


def test_packed_sequences(document):
    code, result = document("verify", "gated_delta", *SMALL[2:], "--axes", "K=16,V=24", "--seqlens", "9,0,1,17")
    assert code == 0 and (result["verify"]["axes"]["T"], result["verify"]["axes"]["N"]) == (27, 4)


@pytest.mark.parametrize("sizes", ["T=0", "B=0"])
def test_nothing_to_do_is_no_error(document, sizes):
    assert document("verify", "gated_delta", "--axes", sizes, "--device", "cpu")[0] == 0


def test_out_that_cannot_be_written_is_said_before_any_work(document, here):
    (here / "file").write_text("")
    for command in ("run", "graph"):
        code, result = document(command, "simple_gla", "--out", "file")
        assert (code, result["errors"][0]["code"]) == (2, "CW601")
        assert result["errors"][0]["message"] == "--out file: file/simple_gla cannot be made: Not a directory"


def test_options_without_an_effect_beside_an_inputs_file_are_refused(document):
    real = PIPELINES.parent / "examples" / "qwen3_next" / "gdn_layer.safetensors"
    for option, value, text in [
        ("--axes", "T=64", "--axes T=64"),
        ("--workload", "tiny", "--workload tiny"),
        ("--case", "resets", "--case resets"),
    ]:
        code, result = document("verify", "gated_delta", "--inputs", real, option, value, "--device", "cpu")
        (error,) = result["errors"]
        assert (code, error["code"]) == (2, "CW601")
        assert error["message"] == f"{text} has no effect beside --inputs: the file's tensors are taken as they are"
    assert document("verify", "gated_delta", "--inputs", real, "--axes", "C=32", "--device", "cpu")[0] == 0


@pytest.mark.parametrize("pipeline, case, help", [
    ("kda", "equal_keys", "leave it out; kda_core and kda_step can have it"),
    ("gla", "equal_keys", "cases of gla are typical, weak_gate, strong_gate, resets"),
    ("linear_attn", "strong_gate", "leave it out"),
])  # fmt: skip
def test_a_case_of_other_inputs_than_a_pipeline_has(document, pipeline, case, help):
    """It would be in the report, and its looser budgets would hold, over inputs that are not of it."""
    code, result = document("verify", pipeline, "--case", case, "--device", "cpu")
    (error,) = result["errors"]
    start = f"--case {case} has no effect: no input of {pipeline} is what it is about, "
    assert (code, error["code"], error["help"]) == (2, "CW601", help) and error["message"].startswith(start)


def test_check_reports_every_file(document, here):
    (here / "wrong.yaml").write_text(WRONG)
    code, result = document("check", "simple_gla", "wrong.yaml", "nowhere.yaml", "gated_delta")
    assert code == 2 and [each["code"] for each in result["errors"]] == ["CW304", "CW101"]
    assert [each["ok"] for each in result["pipelines"]] == [True, False, False, True]


def test_check_warns_of_sizes_that_no_kernel_takes(document, chunkwise):
    code, result = document("check", "gated_delta", "--axes", "C=40")
    assert code == 0 and result["errors"] == []
    assert {each["code"] for each in result["warnings"]} == {"CW605"}
    code, out, err = chunkwise("check", "gated_delta", "--axes", "C=40")
    assert code == 0 and out == "gated_delta: ok, 6 stages\n" and err.startswith("warning[CW605]: kkt ")


def test_a_file_that_is_out_of_budget_fails_with_1(document, here):
    text = (PIPELINES / "simple_gla.yaml").read_text().replace("o = scale * (q @ S)", "o = 2 * scale * (q @ S)")
    (here / "wrong.yaml").write_text(text)
    for command in ("verify", "run"):
        code, result = document(command, "wrong.yaml", *SMALL)
        assert code == 1 and [each["code"] for each in result["errors"]] == ["CW801"]
        assert not result["verify"]["ok"] and not result["verify"]["outputs"]["o"]["ok"]
        assert result["verify"]["outputs"]["final_state"]["ok"]
    assert result["stages"] == [] and {"python", "torch", "device"} <= result["environment"].keys()  # of run


STAGE = '"""Twice."""\nfrom chunkwise.stages._contract import Contract, Port\n\n'
CONTRACT = 'CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K")})\n\n\n'
PIPE = """\
schema: pipeline/v1
name: twice
inputs: {x: B T H K}
stages: {two: {use: twice, in: {x: x}}}
outputs: {y: two.y}
"""


def own(here, body):
    (here / "mine").mkdir()
    (here / "mine" / "twice.py").write_text(body)
    (here / "twice.yaml").write_text(PIPE)
    return "twice.yaml", "--stages", "mine"


def test_a_stage_of_ones_own(document, here):
    argv = own(here, STAGE + CONTRACT + 'def reference(x):\n    return {"y": 2 * x}\n')
    code, result = document("run", *argv, "--axes", "T=20,K=16,H=2", "--device", "cpu")
    assert code == 0 and [stage["stage"] for stage in result["stages"]] == ["twice"]


BROKEN = {
    "import": (
        "import no_such_module\n",
        """\
error[CW501]: stage twice cannot be imported
 --> mine/twice.py:1:1
  |
1 | import no_such_module
  | ^^^^^^^^^^^^^^^^^^^^^ ModuleNotFoundError: No module named 'no_such_module'
""",
    ),
    "it raises": (
        STAGE + CONTRACT + "def reference(x):\n    return x.undefined\n",
        """\
error[CW506]: two: reference of twice failed
 --> mine/twice.py:8:5
  |
8 |     return x.undefined
  |     ^^^^^^^^^^^^^^^^^^ AttributeError: 'Tensor' object has no attribute 'undefined'
""",
    ),
    "no mapping": (
        STAGE + CONTRACT + "def reference(x):\n    return 2 * x\n",
        """\
error[CW506]: two: reference of twice gives a Tensor, no mapping
 --> mine/twice.py:7:5
  |
7 | def reference(x):
  |     ^^^^^^^^^
help: return {"y": y}
""",
    ),
    "another name": (
        STAGE + CONTRACT + 'def reference(x):\n    return {"z": x}\n',
        """\
error[CW506]: two: reference of twice gives no y
 --> mine/twice.py:7:5
  |
7 | def reference(x):
  |     ^^^^^^^^^
help: it gives z
""",
    ),
    "another shape": (
        STAGE + CONTRACT + 'def reference(x):\n    return {"y": x[..., :1]}\n',
        """\
error[CW506]: two: reference of twice gives y [B T H K] the shape [1, 20, 1, 1]
 --> mine/twice.py:7:5
  |
7 | def reference(x):
  |     ^^^^^^^^^
help: these sizes make it [1, 20, 1, 16]
""",
    ),
}


@pytest.mark.parametrize("body, text", BROKEN.values(), ids=BROKEN)
def test_a_stage_of_ones_own_that_is_broken(chunkwise, here, body, text):
    argv = own(here, body)
    code, out, err = chunkwise("verify", *argv, "--axes", "T=20,H=1,K=16", "--device", "cpu")
    assert (code, out) == (2, "") and err.endswith(text + "\n")


def test_a_fault_of_ours_exits_with_4_and_keeps_its_traceback_in_a_file(chunkwise, document, here, monkeypatch):
    def fail(*args, **kwargs):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("chunkwise.runner.commands.verify.verify", fail)
    code, out, err = chunkwise("verify", "simple_gla", *SMALL)
    assert (code, out) == (4, "")
    assert err == (
        "error[CW901]: ZeroDivisionError: on purpose\n"
        "help: this is a fault of chunkwise; please report it with out/traceback.txt\n\n"
    )
    assert "on purpose" in (here / "out" / "traceback.txt").read_text()
    code, result = document("verify", "simple_gla", *SMALL)
    assert (code, result["errors"][0]["code"]) == (4, "CW901")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
    ids=["python", "torch"],
)
def test_out_of_memory_is_the_machines(document, monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("chunkwise.runner.commands.verify.verify", fail)
    code, result = document("verify", "simple_gla", *SMALL)
    assert (code, result["errors"][0]["code"]) == (3, "CW703")


def test_interrupted(chunkwise, document, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("chunkwise.runner.commands.verify.verify", interrupt)
    code, out, err = chunkwise("verify", "simple_gla", *SMALL)
    assert (code, out, err) == (130, "", "interrupted\n")
    code, result = document("verify", "simple_gla", *SMALL)
    assert code == 130 and result["interrupted"] and result["errors"] == []


def test_ctrl_c_of_a_process():
    running = process("verify", "gated_delta", "--axes", "T=20000", "--device", "cpu")
    line = running.stderr.readline()
    assert line == "verify cumsum\n"
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=300)
    assert (running.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted" and "Traceback" not in err


@pytest.mark.parametrize("argv", [("list",), ("list", "--json"), ("show", "gated_delta")], ids=" ".join)
def test_a_reader_that_has_seen_enough(argv):
    running = process(*argv)
    running.stdout.close()
    err = running.stderr.read()
    assert (running.wait(timeout=300), err) == (0, "")


def test_no_command_imports_the_compiler_of_pytorch():
    """It takes as long as all the rest; only ``run --context-parallel`` needs it."""
    run = "import sys; from chunkwise.runner.main import main; main(['list']); sys.exit('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


class Terminal:
    """A stream that says it is a terminal."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass


@pytest.mark.parametrize("no_color", [True, False])
def test_colour_on_a_terminal_unless_no_color(here, monkeypatch, no_color):
    stream = Terminal()
    monkeypatch.setattr(outcome.sys, "stderr", stream)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["check", "gated_dleta"]) == 2
    assert stream.text.startswith("error[CW101]") == no_color
    assert ("\x1b[1;31m" in stream.text) == (not no_color)


def test_no_colour_without_a_terminal(chunkwise, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    code, out, err = chunkwise("verify", "simple_gla", *SMALL)
    assert code == 0 and "\x1b" not in out + err


def test_interpreted_kernels_get_a_process_of_their_own(monkeypatch):
    """Compiled and interpreted kernels do not mix: the command starts again with the interpreter switched on."""
    started = []

    def execve(path, argv, environment):
        started.append((argv[1:], environment["TRITON_INTERPRET"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module.os, "execve", execve)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert main(["verify", "simple_gla", "--backend", "interpret"]) == 130
    assert started == [(["-m", "chunkwise.runner", "verify", "simple_gla", "--backend", "interpret"], "1")]
