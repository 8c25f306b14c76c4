"""The examples: variants without Python, a stage of one's own, tensors of a real model and what it made of them."""

import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from chunkwise.runner import load
from chunkwise.runner.main import main

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
OWN = EXAMPLES / "own_stage"
REAL = EXAMPLES / "qwen3_next" / "gdn_layer.safetensors"
PIPELINES = sorted(EXAMPLES.glob("*/*.yaml"))
SMALL = "B=2,T=70,H=1,HV=2,K=16,V=24"


@pytest.fixture
def document(capsys):
    """(exit code, the JSON) of a command."""

    def run(*argv):
        code = main([*map(str, argv), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("file", PIPELINES, ids=lambda file: file.stem)
def test_every_example_is_right_with_its_gradients(file, document):
    code, result = document("verify", file, "--stages", OWN, "--axes", SMALL, "--backward", "--device", "cpu")
    assert code == 0, result["errors"]
    assert {row["against"] for row in result["verify"]["outputs"].values()} == {"definition"}
    assert {"o", "d_q", "d_k", "d_v"} <= result["verify"]["outputs"].keys()


def test_a_variant_needs_the_sum_of_its_gate(tmp_path, monkeypatch, capsys):
    """What the comment in the file says."""
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / "variants" / "gla_decay_gate.yaml").read_text()
    assert "Add stages: {scan: {in: {g: gate.g}}} under replace" in text
    Path("wrong.yaml").write_text(text + "  stages: {scan: {in: {g: gate.g}}}\n")
    assert main(["check", "wrong.yaml"]) == 2
    error = capsys.readouterr().err
    assert (
        "unit mismatch at scan.g" in error and "help: cumsum (chunk_local_cumsum) converts it: read cumsum.y" in error
    )


def written_commands():
    """The command lines that the examples show."""
    texts = [*EXAMPLES.glob("*/*.yaml"), OWN / "README.md"]
    found = [re.findall(r"^(?:    |#   )chunkwise (.*)$", text.read_text(), re.MULTILINE) for text in texts]
    return [line for lines in found for line in lines]


@pytest.mark.parametrize("line", written_commands())
def test_command_lines_that_the_examples_show(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    words = shlex.split(line)
    small = ["--axes", SMALL, "--device", "cpu"] if words[0] in ("run", "verify") else []
    out = ["--out", str(tmp_path)] if words[0] in ("run", "diff") else []
    differs = int(words[0] == "diff")
    assert main([*words, *small, *out]) == differs, capsys.readouterr().err


def test_command_lines_are_there():
    assert {line.split()[0] for line in written_commands()} == {"show", "check", "verify", "run", "diff", "why"}


SIX = ("gated_delta_negative", "gated_delta_output_gate", "comba", "gla_normalised", "kda_scalar_gate", "coupled_delta")
VARIANTS = sorted((EXAMPLES / "variants").glob("*.yaml"))


@pytest.mark.parametrize("file", VARIANTS, ids=lambda file: file.stem)
def test_a_variant_is_short_and_has_a_source(file, document):
    """That it is its definition stands above."""
    code, result = document("check", file)
    assert (code, result["errors"], result.get("warnings", [])) == (0, [], [])
    assert len(file.read_text().splitlines()) <= 30 and load(file).spec.source


def test_the_table_of_every_variant_has_every_stage():
    """tables.py wrote it: a variant that changes is to be timed again."""
    sections = (EXAMPLES / "variants" / "README.md").read_text().split("\n## ")[1:]
    told = {text.partition("\n")[0]: re.findall(r"^\| (\S+) \| `", text, re.M) for text in sections}
    assert told == {file.stem: list(load(file).whole.nodes) for file in VARIANTS}


def test_a_variant_on_packed_sequences(document):
    """A quotient in an edge, where rows past the last sequence hold 0 / 0 or anything."""
    words = ("--axes", "B=1,T=20,H=1,HV=2,K=16,V=16", "--seqlens", "7,0,10", "--device", "cpu", "--backward")
    code, result = document("verify", EXAMPLES / "variants" / "gla_normalised.yaml", *words)
    assert code == 0, result["errors"]


def test_recall_is_learned_and_drawn(tmp_path):
    """Tiny: two of the six, whose losses fall well below chance."""
    picture, variants = tmp_path / "recall.svg", EXAMPLES / "variants"
    words = ["--steps", "40", "--pairs", "4", "--batch", "8", "--out", str(picture)]
    command = [sys.executable, variants / "recall.py", *words, "--pipeline"]
    two = [variants / f"{name}.yaml" for name in ("comba", "gla_normalised")]
    done = subprocess.run([*command, *two], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in done.stdout.splitlines()[1:-1]}
    assert lines.keys() == {"comba", "gla_normalised"}
    for first, last, _, accuracy in lines.values():
        assert last < math.log(8) / 2 < first and accuracy > 0.5
    assert all(f"<!-- {name} -->" in picture.read_text() for name in lines)


def test_the_picture_of_recall_shows_all_six():
    text = (EXAMPLES / "variants" / "recall.svg").read_text()
    assert all(f"<!-- {name} -->" in text for name in SIX) and len(text) < 100_000


def checked(result):
    """(output, from, against) of every comparison with the file, all of them in budget."""
    rows = result["verify"]["expected"]
    assert all(row["ok"] and 0 < row["rel_l2_err"] <= row["budget"] for row in rows)
    return [(row["output"], row["from"], row["against"]) for row in rows]


@pytest.mark.parametrize(
    "pipeline, inputs", [("gated_delta", "q k v g beta"), ("qwen3_next_gdn", "q k v a b A_log dt_bias")]
)
def test_real_input_equals_what_transformers_made_of_it(pipeline, inputs, document):
    code, result = document("verify", pipeline, "--inputs", REAL, "--backward", "--device", "cpu")
    assert code == 0, result["errors"]
    names = ["o", "final_state", *(f"d_{name}" for name in inputs.split())]
    both = [(name, *pair) for name in names for pair in (("file", "definition"), ("reference", "file"))]
    assert checked(result) == both
    assert result["verify"]["axes"]["T"] == 137


def test_run_verifies_on_the_file(document, tmp_path):
    code, result = document("run", "gated_delta", "--inputs", REAL, "--device", "cpu", "--out", tmp_path)
    assert code == 0 and [row[0] for row in checked(result)] == ["o", "o", "final_state", "final_state"]


@pytest.fixture
def changed(tmp_path):
    """A copy of the real file with some tensors replaced."""

    def write(**tensors):
        path = tmp_path / "changed.safetensors"
        held = load_file(REAL) | tensors
        save_file({name: x.contiguous() for name, x in held.items() if x is not None}, path)
        return path

    return write


def test_one_wrong_number_in_the_expected_output_is_seen(changed, document):
    o = load_file(REAL)["expected.o"]
    o[1, 100, 2, 3] += 1e-3
    code, result = document("verify", "gated_delta", "--inputs", changed(**{"expected.o": o}), "--device", "cpu")
    assert code == 1 and not result["ok"]
    assert [row["ok"] for row in result["verify"]["expected"]] == [False, False, True, True]
    (error,) = result["errors"]
    assert error["code"] == "CW801"
    assert error["message"].startswith("o of file, held against the definition, is the first out of budget: off by ")


def test_gradients_are_compared_only_when_all_their_cotangents_are_given(changed, document):
    path = changed(**{"cotangent.o": None})
    code, result = document("verify", "gated_delta", "--inputs", path, "--backward", "--device", "cpu")
    assert code == 0 and {row[0] for row in checked(result)} == {"o", "final_state"}


def test_a_cast_of_the_inputs_expects_nothing(document):
    code, result = document("verify", "gated_delta", "--inputs", REAL, "--dtype", "bf16", "--device", "cpu")
    assert code == 0 and checked(result) == [] and result["verify"]["dtype"] == "bf16"


def test_a_part_of_the_pipeline_expects_nothing(document):
    code, result = document("verify", "gated_delta", "--inputs", REAL, "--until", "scan", "--device", "cpu")
    assert code == 0 and checked(result) == []


REFUSED = {
    "a shape": (
        {"expected.o": torch.zeros(2, 137, 4, 19)},
        "expected.o has the shape [2, 137, 4, 19], these inputs make it [2, 137, 4, 20]",
    ),
    "a shape of a cotangent": (
        {"cotangent.o": torch.zeros(137, 4, 20)},
        "cotangent.o has the shape [137, 4, 20], these inputs make it [2, 137, 4, 20]",
    ),
    "an input": ({"gated_delta.g": None, "g": None}, "changed.safetensors holds no g"),
}


@pytest.mark.parametrize("tensors, message", REFUSED.values(), ids=REFUSED)
def test_a_file_that_does_not_fit(changed, document, tensors, message):
    code, result = document("verify", "gated_delta", "--backward", "--inputs", changed(**tensors), "--device", "cpu")
    (error,) = result["errors"]
    assert (code, error["code"]) == (2, "CW607") and error["message"].endswith(message)


def test_a_file_that_is_none(document, tmp_path):
    (tmp_path / "text.safetensors").write_text("hello")
    for name, code in (("text.safetensors", "CW607"), ("nothing.safetensors", "CW101")):
        status, result = document("verify", "gated_delta", "--inputs", tmp_path / name)
        assert (status, [error["code"] for error in result["errors"]]) == (2, [code])


def decode_table(device):
    """The lines that examples/decode_table.py prints, by their first word; a step's name stands in both tables."""
    words = ["--batch", "2", "--heads", "2", "--width", "16", "--contexts", "64,256", "--device", device]
    script = EXAMPLES / "decode_table.py"
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    times, kept = done.stdout.split("kept per sequence")
    return times, *({line.split()[0]: line.split()[1:] for line in part.splitlines() if line} for part in (times, kept))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_decode_table(device):
    """A cache grows with the context, a state does not; on a CPU it is said that no kernel was timed."""
    text, times, kept = decode_table(device)
    steps = {"gla_step", "lightning_step", "kda_step", "mamba2_step"}
    assert steps | {"softmax"} <= times.keys() and steps | {"softmax"} <= kept.keys()
    assert all(float(each) > 0 for name in steps | {"softmax"} for each in times[name])
    assert all(kept[name] == ["2", "KiB"] * 2 for name in steps)
    itemsize = 2 if device == "cuda" else 4
    assert kept["softmax"] == [str(itemsize * 4), "KiB", str(itemsize * 16), "KiB"]
    assert ("no measure of the kernels" in text) == (device == "cpu")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_memory_by_segments(device):
    """The shorter the segments, the less memory; a CPU counts none."""
    workload, chunks = ("tiny", "2,1") if device == "cpu" else ("B1_T8192_H96_D128", "64,32")
    words = ["simple_gla", "--workload", workload, "--chunks", chunks, "--device", device]
    command = [sys.executable, EXAMPLES / "memory_by_segments.py", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    kept = [f"a state every {'chunk' if n == '1' else f'{n} chunks'}" for n in chunks.split(",")]
    assert [row[0] for row in rows] == ["no state", *kept]
    assert all(float(row[1]) > 0 for row in rows)
    if device == "cpu":
        assert [row[2] for row in rows] == ["-"] * 3
    else:
        peaks = [float(row[2]) for row in rows]
        assert peaks == sorted(peaks, reverse=True) and peaks[-1] < 0.8 * peaks[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="measures, where there is a GPU")
def test_sequences_for_a_gpu_are_not_measured_on_a_cpu():
    command = [sys.executable, str(EXAMPLES / "context_parallel" / "measure.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and done.stderr.endswith("; --tiny shows it on a CPU\n")
