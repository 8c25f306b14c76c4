"""The examples on their kernels: variants, a stage of one's own, tensors of a real model."""

import json
from pathlib import Path

import pytest

from chunkwise.runner.main import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OWN = EXAMPLES / "own_stage"
REAL = EXAMPLES / "qwen3_next" / "gdn_layer.safetensors"
SMALL = "B=1,T=70,H=1,HV=1,K=16,V=24"


def verified(capsys, *argv):
    """What verify says of the op's outputs, once it has passed."""
    code = main(["verify", *map(str, argv), "--backend", "interpret", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == 0, result["errors"]
    return result["verify"]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda file: file.stem)
def test_every_example(capsys, file):
    outputs = verified(capsys, file, "--stages", OWN, "--axes", SMALL)["outputs"]
    assert {row["against"] for row in outputs.values()} == {"definition"}


def test_real_input(capsys):
    found = verified(capsys, "qwen3_next_gdn", "--inputs", REAL)
    assert all(0 < row["rel_l2_err"] <= row["budget"] for row in found["expected"])
    pairs = (("file", "definition"), ("interpret", "file"))
    compared = [(row["output"], row["from"], row["against"]) for row in found["expected"]]
    assert compared == [(name, *pair) for name in ("o", "final_state") for pair in pairs]
