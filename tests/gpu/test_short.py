"""On a GPU: the one-token steps, with their states in slots and without, the recurrent form, and the teaching steps."""

import pytest
import torch
from support.ops import DECODE, STEPS, check, inputs, op

pytestmark = pytest.mark.gpu

IO = [torch.bfloat16, torch.float32]
RECURRENT = ["gated_delta", "delta_rule", "simple_gla", "retention", "lightning", "gla", "kda", "mamba2"]


@pytest.mark.parametrize("io", IO, ids=str)
@pytest.mark.parametrize("T", [1, 4])
@pytest.mark.parametrize("name", DECODE)
def test_steps_in_slots(name, T, io):
    """Of more slots than sequences, one of which has none."""
    kernel = op(name, backend="triton")
    given = inputs(kernel, io, device="cuda", B=3, T=T, H=4, HV=8, K=128, V=128, SLOTS=7)
    given["state_indices"] = torch.tensor([4, -1, 0], device="cuda", dtype=torch.int32)
    check(kernel, given)


@pytest.mark.parametrize("io", IO, ids=str)
@pytest.mark.parametrize("seqlens", [None, (7, 0, 1, 16)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", RECURRENT)
def test_the_recurrent_form(name, seqlens, io):
    kernel = op(name, backend="triton", mode="recurrent")
    T = 5 if seqlens is None else sum(seqlens)
    given = inputs(kernel, io, seqlens=seqlens, device="cuda", T=T, H=2, HV=4, K=128, V=128)
    assert kernel.bind(given, None, seqlens).mode == "recurrent"
    check(kernel, given, seqlens=seqlens)


@pytest.mark.parametrize("io", IO, ids=str)
@pytest.mark.parametrize("T", [1, 63, 130])
@pytest.mark.parametrize("name", STEPS)
def test_teaching_steps(name, T, io):
    kernel = op(name, backend="triton")
    check(kernel, inputs(kernel, io, device="cuda", B=2, T=T, H=2, HV=2, K=64, V=64, D=64, DI=128, NS=64))
