"""Kernels of the ops with a decay per channel, those for Hopper included: causality bit for bit, batches too."""

import pytest
import torch
from support.channel_stages import check_causality
from support.ops import inputs, op, same_bits

pytestmark = pytest.mark.gpu

SIZES = dict(B=1, T=150, H=2, HV=2, K=128, V=128)
GATES = [("gla", "g", -5.0), ("kda_core", "g", -5.0), ("kda", "a", 30.0), ("kda_bounded", "a", 1e4)]


@pytest.mark.parametrize("fuse", ["auto", "none"])
@pytest.mark.parametrize("t", [64, 101, 149])
@pytest.mark.parametrize("name,gate,value", GATES)
def test_n10_causality(name, gate, value, t, fuse):
    an_op = op(name, None, "triton", fuse=fuse)
    check_causality(an_op, inputs(an_op, torch.bfloat16, device="cuda", **SIZES), gate, t, value)


@pytest.mark.parametrize("name", [name for name, _, _ in GATES])
def test_x1_a_batch_of_four_is_four_of_one(name):
    an_op = op(name, None, "triton")
    given = inputs(an_op, torch.bfloat16, device="cuda", **{**SIZES, "B": 4})
    out = an_op(**given)
    batched = {each for each, value in an_op.whole.inputs.items() if value.axes[0] in ("B", "N")}
    for b in range(4):
        alone = an_op(**{each: x[b : b + 1] if each in batched else x for each, x in given.items()})
        assert same_bits(alone.o, out.o[b : b + 1]) and same_bits(alone.final_state, out.final_state[b : b + 1])
