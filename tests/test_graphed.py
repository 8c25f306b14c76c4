"""Calls as CUDA graphs, where no GPU is needed: what is refused, in words. tests/gpu/test_graphed.py replays them."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from support.ops import inputs
from support.stand_in_driver import stand_in_driver

from chunkwise.runner import load
from chunkwise.runner.calling.graphed import WARM_UPS, check
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


@pytest.fixture
def launched(monkeypatch):
    """What reaches a driver that stands in for a GPU's, by phase: capture is what a CUDA graph would hold."""
    with stand_in_driver() as driver:
        phases = {"warm up": [], "capture": [], "replays": 0}

        class Capture:
            def __init__(self, graph):
                phases["warm up"], driver.launches = driver.launches, []

            def __enter__(self):
                return self

            def __exit__(self, *error):
                phases["capture"], driver.launches = driver.launches, []

        def replay():
            phases["replays"] += 1

        stream = SimpleNamespace(wait_stream=lambda other: None)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=replay))
        monkeypatch.setattr(torch.cuda, "graph", Capture)
        monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        yield phases


def addresses(launches):
    return {x for *_, arguments in launches for x in arguments if type(x) is int}


def test_what_is_captured(launched):
    """The call on the tensors given, once; a warm-up writes over a copy of the states."""
    op = load("kda_decode", backend="triton")
    given = inputs(op, torch.bfloat16, **SIZES, T=1)
    replay = op.graphed(**given)
    assert len(launched["warm up"]) == WARM_UPS * len(launched["capture"]) > 0
    read = {x.data_ptr() for x in given.values()}
    assert read <= addresses(launched["capture"])
    assert addresses(launched["warm up"]) & read == read - {given["state"].data_ptr()}
    assert {x.data_ptr() for x in replay.outputs} <= addresses(launched["capture"])
    assert replay.outputs.new_state is given["state"] and all(replay.inputs[name] is given[name] for name in given)
    before = {name: x._version for name, x in given.items()}
    replay()
    assert {name for name, x in given.items() if x._version > before[name]} == {"state"}


def test_what_a_replay_is_given_is_copied_in(launched):
    op = load("gated_delta", backend="triton")
    given = {name: x.requires_grad_() for name, x in inputs(op, torch.bfloat16, **SIZES, T=20).items()}
    with torch.no_grad():
        replay = op.graphed(**given, outputs=["o"])
    other = torch.ones_like(given["q"])
    out = replay(q=other, k=given["k"])
    assert torch.equal(given["q"], other) and launched["replays"] == 1
    assert out is replay.outputs is replay() and out.final_state is None and launched["replays"] == 2
