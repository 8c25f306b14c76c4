"""Commands on kernels: what no kernel takes, and what the interpreter makes of a dtype."""

import json
from pathlib import Path

import pytest

from chunkwise.runner.main import main

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"


@pytest.mark.parametrize(
    "axes, stages, reason",
    [
        ("K=300,T=20", {"scan", "out"}, "K = 300: at most 256"),
        ("C=40,T=20", {"kkt", "solve", "wy", "scan", "out"}, "C = 40: a power of two from 16 to 128"),
    ],
)
def test_sizes_that_no_kernel_takes(capsys, axes, stages, reason):
    """Every stage that refuses them, in one run."""
    code = main(["run", "gated_delta", "--backend", "interpret", "--axes", axes, "--json"])
    errors = {error["message"].split()[0]: error for error in json.loads(capsys.readouterr().out)["errors"]}
    assert code == 2 and stages <= errors.keys()
    for stage, error in errors.items():
        assert error["code"] == "CW605" and error["message"].startswith(f"{stage} (")
        who = "triton, pieces" if stage == "scan" else "triton"
        assert error["message"].endswith(f") has no kernel for these sizes: {who} refused: {reason}")
        assert error["help"] == "--backend reference (backend='reference') runs any size in PyTorch"
        line = (PIPELINES / "gated_delta.yaml").read_text().splitlines()[error["line"] - 1]
        written = line[error["column"] - 1 : error["end_column"] - 1]
        assert error["file"].endswith("pipelines/gated_delta.yaml") and written == stage


def test_the_interpreter_computes_in_float32_and_says_so(capsys):
    small = ("--axes", "B=1,T=20,H=1,HV=2,K=16,V=24")
    assert main(["verify", "simple_gla", "--backend", "interpret", "--dtype", "bf16", *small]) == 0
    assert "note: the interpreter computes in fp32; bf16 inputs are generated as fp32" in capsys.readouterr().out
