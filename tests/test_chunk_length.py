"""A chunk length that follows the sequences: ``axes: {C: 16..64}``."""

from pathlib import Path

import pytest
from support.ops import LITTLE, check, inputs, refusal, same_bits

from chunkwise.runner import load

GLA = (Path(__file__).parents[1] / "pipelines" / "gla.yaml").read_text()
LENGTHS = {0: 16, 1: 16, 16: 16, 17: 32, 32: 32, 33: 64, 64: 64, 65: 64, 300: 64}


@pytest.fixture(scope="module")
def gla():
    return load("gla", backend="reference", mode="chunk")


def bound(op, seqlens=None, **sizes):
    return op.bind(inputs(op, seqlens=seqlens, **{**LITTLE, **sizes}), None, seqlens)


@pytest.mark.parametrize("T, C", LENGTHS.items())
def test_it_is_the_power_of_two_that_holds_the_longest_sequence(gla, T, C):
    assert bound(gla, T=T).sizes["C"] == C
    assert bound(gla, seqlens=(T, 0, min(T, 3))).sizes["C"] == C


def test_it_does_not_depend_on_the_batch(gla):
    given = inputs(gla, **{**LITTLE, "B": 3, "T": 20})
    alone = {name: x[1:2] for name, x in given.items()}
    assert same_bits(gla(**given).o[1:2], gla(**alone).o)


@pytest.mark.parametrize("T", [5, 20])
def test_forward_and_gradients_are_right(gla, T):
    check(gla, inputs(gla, **LITTLE, T=T), backward=True)


def test_a_size_that_is_asked_for_stays(gla):
    assert bound(gla.with_axes({"C": 64}), T=5).sizes["C"] == 64


def test_compiled_code_has_the_longest(gla):
    assert gla.library.op.spec.axes["C"].least is None and gla.library.op.spec.axes["C"].value == 64


WRONG = {
    "C: 64..16": "axes.C: '64..16' is not a whole number from 1 to 999999999",
    "C: 20..64": "axes.C: '20..64' is not a whole number from 1 to 999999999",
    "C: 16..64, V: 16..64": "axes.V cannot be 16..64: only C follows the sequences",
}


@pytest.mark.parametrize("written, message", WRONG.items(), ids=WRONG)
def test_what_is_no_chunk_length(tmp_path, written, message):
    (tmp_path / "p.yaml").write_text(GLA.replace("C: 16..64", written))
    assert message in [each.message for each in refusal(load, tmp_path / "p.yaml")]


def test_an_input_that_has_chunks_cannot_follow(tmp_path):
    text = GLA.replace("  v: B T HV V\n", "  v: B T HV V\n  w: {shape: B NT HV, optional: true}\n")
    (tmp_path / "p.yaml").write_text(text)
    messages = [each.message for each in refusal(load, tmp_path / "p.yaml")]
    assert "axes.C cannot be 16..64: the input w has chunks" in messages
