"""Kernels of the stages with a decay per channel: each gradient asked for alone, and causality bit for bit."""

import pytest
import torch
from support.channel_stages import check_causality
from support.ops import inputs, op, same_bits

TINY = dict(B=1, T=22, H=1, HV=2, K=12, V=10)


def gradients(an_op, given, wanted):
    tracked = {n: x.clone().requires_grad_(n in wanted) for n, x in given.items()}
    out = an_op(**tracked)
    torch.autograd.backward([out.o, out.final_state], [torch.ones_like(out.o), torch.ones_like(out.final_state)])
    return {name: tracked[name].grad for name in wanted}


@pytest.mark.parametrize("name", ["gla", "kda_bounded"])
def test_each_gradient_alone(name):
    """What is not asked for is neither needed nor stored, and changes no bit of what is."""
    an_op = op(name, 16, "interpret")
    given = inputs(an_op, **TINY)
    together = gradients(an_op, given, list(given))
    for each in given:
        assert same_bits(gradients(an_op, given, [each])[each], together[each]), each


@pytest.mark.parametrize(
    "name,gate,value,C",
    [("gla", "g", -5.0, 16), ("gla", "g", -5.0, 32), ("kda_core", "g", -5.0, 32), ("kda_bounded", "a", 1e4, 16)],
)
def test_n10_causality(name, gate, value, C):
    an_op = op(name, C, "interpret")
    check_causality(an_op, inputs(an_op, **TINY), gate, 21, value)
