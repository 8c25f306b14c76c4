"""Prepared launches: what reaches compiled kernels is what Triton's own way would hand them, and when that way is taken.
On a driver that stands in for a GPU's: support/stand_in_driver.py."""


import pytest
import torch
from support.ops import DECODE, DENSE, PIPELINES, STEPS, inputs
from support.stand_in_driver import stand_in_driver

from chunkwise.runner import load
from chunkwise.runner.launching import run_plan as launching
from chunkwise.runner.planning.execute import execute

NAMES = [*PIPELINES, *DECODE, *STEPS, *DENSE]
PACKED = ("gated_delta", "kda", "gla", "mamba2", "flash_varlen")
SMALL = dict(B=2, T=70, H=2, HV=4, K=32, V=16)


@pytest.fixture
def driver():
    with stand_in_driver() as found:
        yield found


class Kept:
    """Makes buffers and keeps them: no address comes twice."""

    def __init__(self):
        self.buffers = []

    def __call__(self, *args, **keywords):
        self.buffers.append(torch.empty(*args, **keywords))
        return self.buffers[-1]


def both_ways(driver, plan, tensors, params, seqs):
    """The launches of Triton's way and of the program, and the buffers of the first."""
    make = Kept()
    launching.run_plan(plan, tensors, params, seqs)
    (program,) = [each for each in plan.prepared.items.values() if each is not launching.PLAIN] or [None]
    if program is None:
        return None
    driver.launches.clear()
    execute(plan, tensors, params, seqs, make=make)
    plain = list(driver.launches)
    driver.launches.clear()
    results = program(tensors, seqs)
    prepared = list(driver.launches)
    driver.launches.clear()
    return plain, prepared, make.buffers, results


def same_arguments(plain, prepared, buffers):
    """The same kernels, grids, streams and values; each buffer has one place, of its size, that no other one shares."""
    sizes = {x.data_ptr(): x.nbytes for x in buffers if x.nbytes}
    place = {}
    assert [each[:3] for each in plain] == [each[:3] for each in prepared]
    for (*_, one), (*_, two) in zip(plain, prepared, strict=True):
        for a, b in zip(one, two, strict=True):
            if type(a) is int and a in sizes:
                assert place.setdefault(a, b) == b and b % 16 == 0
            elif a != 0 or type(a) is not int:
                assert (type(a), repr(a)) == (type(b), repr(b))
    places = sorted((place[a], sizes[a]) for a in place)
    assert all(start + size <= after for (start, size), (after, _) in zip(places, places[1:]))
    return len(plain)


def plans_of(call, backward):
    """(plan, what it takes) of a call: forward, or forward and backward with made up values between them."""
    given = call.contiguous
    if not backward:
        return [(call.forward_plan(), given)]
    joint = call.joint(call.trainable(), call.wanted)
    plans = call.forward_plan(joint), call.backward_plan(joint)
    made = {name: buffer for step in plans[0].steps for port, buffer in step.outputs.items() if buffer
            for name in [step.node.outputs[port]]}  # fmt: skip
    kept = {name: torch.zeros(made[name].shape, dtype=made[name].dtype) for name in joint.kept}
    incoming = {}
    for output, value in joint.cotangents.items():
        buffer = made[joint.outputs[output]]
        incoming[value] = torch.zeros(buffer.shape, dtype=buffer.dtype)
    return [(plans[0], given), (plans[1], {**given, **kept, **incoming})]


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", NAMES)
def test_a_program_hands_over_what_triton_would(name, backward, driver):
    op = load(name, backend="triton")
    if backward and op.whole.mutated:
        pytest.skip("writes over its states, and has no gradients")
    call = op.bind(inputs(op, torch.bfloat16, **SMALL))
    for plan, tensors in plans_of(call, backward):
        found = both_ways(driver, plan, tensors, call.params, call.seqs)
        by_reference = any(step.launcher is None for step in plan.steps)
        assert (found is None) == by_reference
        if found:
            assert same_arguments(*found[:3]) > 0
