"""Calls as CUDA graphs: what a replay gives is what a call gives."""

import pytest
import torch
from support.ops import OPS, inputs, op, same_bits

from chunkwise.runner.calling.graphed import Graphed, GraphedTraining

pytestmark = pytest.mark.gpu

SIZES = dict(H=2, HV=4, K=64, V=64)


def equal(one, two):
    return all(same_bits(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("seqlens", [None, (33, 0, 1, 64)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", OPS)
def test_a_replay_is_a_call(name, seqlens):
    kernel = op(name, backend="triton")
    sizes = dict(SIZES, seqlens=seqlens, device="cuda")
    given, other = (inputs(kernel, torch.bfloat16, seed=seed, **sizes) for seed in (0, 1))
    expected, expected_other = kernel(**given, seqlens=seqlens), kernel(**other, seqlens=seqlens)
    replay = kernel.graphed(**given, seqlens=seqlens)
    assert isinstance(replay, Graphed)
    assert equal(replay(), expected)
    assert equal(replay(**other), expected_other)
    assert equal(given.values(), other.values())  # copied into the tensors that were captured
    assert equal(replay(), expected_other)


def test_inputs_are_filled_in_place():
    kernel = op("gated_delta", backend="triton")
    given, other = (inputs(kernel, torch.bfloat16, seed=seed, device="cuda", **SIZES) for seed in (0, 1))
    replay = kernel.graphed(**given, outputs=["o"])
    for name, x in replay.inputs.items():
        assert x is given[name]
        x.copy_(other[name])
    out = replay()
    assert same_bits(out.o, kernel(**other).o) and out.final_state is None


@pytest.mark.parametrize("name", ["gated_delta_decode", "kda_decode"])
def test_states_go_on_from_replay_to_replay(name):
    """Nothing moves them on but replays: neither the warm-up nor the capture."""
    kernel = op(name, backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", B=2, T=1, **SIZES)
    (written,) = kernel.whole.mutated.values()
    start = given[written].clone()
    replay = kernel.graphed(**given)
    torch.cuda.synchronize()
    assert same_bits(given[written], start)
    eager = {**given, written: start}
    for _ in range(3):
        expected = kernel(**eager)
        assert equal([x.clone() for x in replay() if x is not None], [x for x in expected if x is not None])
    assert same_bits(given[written], start)


def test_inputs_that_are_not_contiguous():
    kernel = op("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    expected = kernel(**given)
    given["q"] = given["q"].transpose(1, 2).contiguous().transpose(1, 2)
    replay = kernel.graphed(**given)
    assert equal(replay(), expected)


def test_the_second_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    kernel = op("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda:1", **SIZES)
    replay = kernel.graphed(**given)
    assert torch.cuda.current_device() == 0
    assert equal(replay(), kernel(**given))


def test_a_replay_waits_for_nothing():
    kernel = op("gated_delta", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", **SIZES)
    other = {name: x.clone() for name, x in given.items()}
    replay = kernel.graphed(**given)
    torch.cuda.set_sync_debug_mode("error")
    try:
        replay()
        replay(**other)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("seqlens", [None, (33, 0, 1, 64)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", ["gated_delta", "kda"])
def test_both_passes(name, seqlens):
    """Gradients of the graph's backward pass are the call's."""
    kernel = op(name, backend="triton")
    made = [inputs(kernel, torch.bfloat16, seqlens=seqlens, seed=seed, device="cuda", **SIZES) for seed in (0, 1, 2)]

    def passes(run, given):
        leaves = {each: x.detach().clone().requires_grad_() for each, x in given.items()}
        out = run(**leaves)
        found = torch.autograd.grad(out.o.float().square().sum() + out.final_state.sum(), list(leaves.values()))
        return [x.detach().clone() for x in (*out, *found)]

    leaves = {each: x.detach().clone().requires_grad_() for each, x in made[0].items()}
    step = kernel.graphed(**leaves, seqlens=seqlens)
    assert isinstance(step, GraphedTraining)
    for given in made:
        assert equal(passes(step, given), passes(lambda **x: kernel(**x, seqlens=seqlens), given))
