"""Gradients whose terms cancel: what their rounding is measured against, and what is found all the same."""

from dataclasses import replace
from functools import wraps
from pathlib import Path

import pytest
import torch
from support.ops import check, inputs, op

from chunkwise.runner import load
from chunkwise.runner.calling.function import Op
from chunkwise.runner.verification.cancellation import DRAWS, RandomSigns
from chunkwise.runner.verification.verify import verify

VARIANTS = Path(__file__).parents[1] / "examples" / "variants"


def rms(make) -> torch.Tensor:
    draws = []
    for seed in range(200):
        with RandomSigns(seed):
            draws.append(make())
    return torch.stack(draws).square().mean(0).sqrt()


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: torch.einsum("ij,ij->i", a, b),
        lambda a, b: torch.einsum("ij,ij->i", [a, b]),
        lambda a, b: (a[:, None] @ b[..., None])[:, 0, 0],
        lambda a, b: (a * b).sum(-1),
    ],
)
def test_random_signs_give_the_root_of_the_terms_squares(make):
    """Also where the terms cancel to nothing."""
    a = torch.tensor([[3.0, 3.0, 1.0], [1.0, 2.0, 4.0]])
    b = torch.tensor([[1.0, -1.0, 0.0], [0.5, 1.0, 1.0]])
    assert make(a, b).tolist() == [0.0, 6.5]
    assert torch.allclose(rms(lambda: make(a, b)), (a * b).square().sum(-1).sqrt(), rtol=0.15)
    assert DRAWS >= 8


def test_whole_numbers_keep_their_sums():
    with RandomSigns(0):
        assert torch.arange(5).sum() == 10


@pytest.mark.parametrize("seed", [0, 1])
def test_a_gradient_that_cancels_is_no_fault_of_the_references(seed):
    """Seed 1: one number of d_b_end, an inner product of two states, stands over the others, and is small by chance.
    Seed 0: so is d_A_log, a sum over tokens and channels."""
    kernel = op("kda_bounded")
    check(kernel, inputs(kernel, torch.bfloat16, seed=seed, B=1, T=256, H=2, HV=4, K=32, V=32), backward=True)


@pytest.mark.parametrize("variant", ["comba", "gla_normalised"])
def test_contributions_that_cancel(variant):
    """The same decay in a weight and, inverted, in a value; a numerator and its denominator. Each passes through an
    expression, whose gradient is as wrong as what comes into it."""
    kernel = load(VARIANTS / f"{variant}.yaml", mode="chunk")
    check(kernel, inputs(kernel, torch.bfloat16, B=2, T=130, H=2, HV=4, K=64, V=64), backward=True)


@pytest.mark.parametrize("T,seed", [(64, 1), (64, 4), (130, 5)])
def test_a_gate_is_as_wrong_as_what_comes_into_it(T, seed):
    """One head: d_A_log, d_dt_bias and d_b go through gates, of contributions that cancel to a tenth."""
    kernel = op("qwen3_next_gdn")
    check(kernel, inputs(kernel, torch.float16, seed=seed, B=1, T=T, H=1, HV=1, K=32, V=32), backward=True)


def test_a_wrong_gate_is_found_where_its_contributions_cancel():
    """One per cent, in the case whose cap is widest."""
    kernel = op("qwen3_next_gdn")
    right = kernel.stages["decay_gate"]

    @wraps(right.vjp)
    def off(*given, **named):
        return {name: 1.01 * x if name == "A_log" else x for name, x in right.vjp(*given, **named).items()}

    wrong = Op(kernel.spec, {**kernel.stages, "decay_gate": replace(right, vjp=off)}, kernel.backend)
    given = inputs(kernel, torch.float16, seed=4, B=1, T=64, H=1, HV=1, K=32, V=32)
    bad = {row.value for row in verify(wrong, given, backward=True).rows if row.id == "op" and not row.ok}
    assert bad == {"d_A_log"}
