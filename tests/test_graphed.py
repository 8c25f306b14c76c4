"""Calls as CUDA graphs, where no GPU is needed: what is refused, in words. tests/gpu/test_graphed.py replays them."""

import pytest
import torch
from support.ops import inputs

from chunkwise.runner import load
from chunkwise.runner.calling.graphed import check
from chunkwise.runner.diagnostics.errors import ChunkwiseError

SIZES = dict(B=2, H=1, HV=1, K=8, V=8)


def refused(call):
    with pytest.raises(ChunkwiseError) as caught:
        call()
    (found,) = caught.value.diagnostics
    return found.code, found.message, found.help


def test_without_a_gpu():
    op = load("gated_delta")
    assert refused(lambda: op.graphed(**inputs(op, **SIZES))) == (
        "CW701",
        "a CUDA graph of gated_delta needs its kernels on a GPU, and the back end is reference",
        "pass tensors that are on a GPU",
    )


def test_what_a_call_is_refused_for_comes_first():
    op = load("gated_delta")
    given = inputs(op, **SIZES)
    assert refused(lambda: op.graphed(**{**given, "q": None}))[1] == "the input q [B T H K] is missing"


@pytest.mark.parametrize("name, x, message, help", [
    ("z", None, "this graph of gated_delta_decode reads no z", "the graph reads {names}"),
    ("qq", None, "this graph of gated_delta_decode reads no qq", "did you mean q?"),
    ("q", torch.zeros(3), "q [B T H K] was captured as fp32 [2, 1, 1, 8] on cpu, and this is fp32 [3] on cpu",
     "a graph holds for one signature: make another for this one"),
    ("q", torch.zeros(2, 1, 1, 8).half(),
     "q [B T H K] was captured as fp32 [2, 1, 1, 8] on cpu, and this is fp16 [2, 1, 1, 8] on cpu",
     "a graph holds for one signature: make another for this one"),
    ("q", 1.0, "q [B T H K] was captured as fp32 [2, 1, 1, 8] on cpu, and this is a float",
     "a graph holds for one signature: make another for this one"),
    ("state", torch.zeros(3), "state [SLOTS HV K V] is written over by every replay, in the tensor that was captured",
     "fill that one in place: replay.inputs['state']"),
])  # fmt: skip
def test_what_a_replay_does_not_take(name, x, message, help):
    op = load("gated_delta_decode")
    call = op.bind(inputs(op, **SIZES, T=1))
    given = {each: tensor for each, tensor in call.tensors.items() if tensor is not None}
    expected = ("CW604", message, help.format(names=", ".join(given)))
    assert refused(lambda: check(call.graph, given, name, x)) == expected
