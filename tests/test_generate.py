"""Generated inputs: lawful, reproducible, and each case is what it says."""

import math

import pytest
import torch
from support.ops import GATED, PIPELINES, inputs, op

from chunkwise.runner.verification.generate import CASES, ILL_CONDITIONED, cases_of
from chunkwise.stages._laws import violations


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PIPELINES)
def test_every_input_keeps_its_laws(name, case):
    graph = op(name).whole
    for input_name, x in inputs(op(name), torch.float32, case=case).items():
        value = graph.inputs[input_name]
        assert x.isfinite().all() and x.is_contiguous()
        for law in value.laws:
            assert not violations(law, x, tuple(map(str, value.axes)), 64).any(), (input_name, law.text)


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", PIPELINES)
def test_dtypes(name, io):
    for input_name, x in inputs(op(name), io).items():
        port = op(name).whole.inputs[input_name].dtype
        f32 = torch.float64 if io == torch.float64 else torch.float32
        assert x.dtype == {"io": io, "f32": f32, "int": torch.int32}[port]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_seed_is_a_set_of_inputs(name):
    one, same, other = inputs(op(name)), inputs(op(name)), inputs(op(name), seed=1)
    assert all(torch.equal(x, same[each]) for each, x in one.items())
    assert any(not torch.equal(x, other[each]) for each, x in one.items())
    first, *rest = [x.flatten()[:8] for x in one.values() if x.numel() >= 8]
    assert not any(torch.equal(first, x) for x in rest)


def gates(name, case):
    return inputs(op(name), case=case, T=500)["g"]


@pytest.mark.parametrize("name", GATED)
def test_cases_are_what_they_say(name):
    assert gates(name, "weak_gate").min() > -0.02
    assert -20 <= gates(name, "strong_gate").min() < -19 < -1 < gates(name, "strong_gate").max() < 0
    resets = gates(name, "resets")
    assert (resets[:, 0] == -3e37).all()
    assert 0.005 < (resets[:, 1:] == -3e37).double().mean() < 0.1


def test_equal_keys():
    given = inputs(op("gated_delta"), torch.float64, case="equal_keys")
    assert torch.equal(given["k"], given["k"][:, :1].expand_as(given["k"]))
    assert (given["beta"] == 0.99).all() and given["g"].min() > -0.02
    assert math.isclose(given["k"][0, 0, 0].norm().item(), 1)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_case_is_of_the_pipelines_whose_inputs_it_shapes(name):
    """equal_keys without keys of length 1 is a weak gate, and none of its own."""
    typical = inputs(op(name))
    made = {case: inputs(op(name), case=case) for case in CASES}
    other = {case for case in CASES if any(not torch.equal(x, typical[key]) for key, x in made[case].items())}
    known = set(cases_of(op(name).whole)) - {"typical"}
    assert known <= other and other - known <= {"equal_keys"}
    same = [key for key, x in made["equal_keys"].items() if x.dim() > 2 and torch.equal(x, x[:, :1].expand_as(x))]
    assert ("k" in same) == ("equal_keys" in known)


def test_ill_conditioned_cases_are_cases():
    assert ILL_CONDITIONED < CASES.keys()
