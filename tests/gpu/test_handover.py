"""Scans that one program begins and another ends: the bits are those of scans that one program does."""

import pytest
import torch
from support.ops import check, inputs, op, same_bits

from chunkwise.stages import _handover
from chunkwise.stages._handover import spread_at

pytestmark = pytest.mark.gpu

SHAPES = {
    "heads of speed A": dict(B=1, T=2048, H=96, HV=96, K=128, V=128),
    "ragged, shared keys": dict(B=3, T=2000, H=16, HV=32, K=128, V=128),
    "a whole round ahead": dict(B=5, T=1000, H=32, HV=32, K=128, V=128),
    "large teams": dict(B=2, T=1024, H=80, HV=80, K=64, V=64),
    "four slices": dict(B=1, T=1100, H=12, HV=48, K=64, V=256),
}


def results(name, given, monkeypatch, spread):
    with monkeypatch.context() as patch:
        if not spread:
            patch.setattr(_handover, "spread", lambda heads, slices, chunks: None)
        kernel = op(name, backend="triton")
        leaves = {key: x.detach().clone().requires_grad_(kernel.has_gradient(key)) for key, x in given.items()}
        out = kernel(**leaves)
        torch.manual_seed(0)
        torch.autograd.backward([out.o, out.final_state], [torch.randn_like(x) for x in (out.o, out.final_state)])
    gradients = {f"d_{key}": x.grad for key, x in leaves.items() if x.requires_grad}
    return {"o": out.o.detach(), "final_state": out.final_state.detach(), **gradients}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["gated_delta", "delta_rule", "simple_gla", "retention"])
def test_bits(name, shape, monkeypatch):
    sizes = SHAPES[shape]
    assert spread_at(sizes | {"N": sizes["B"], "C": 64})
    given = inputs(op(name, backend="triton"), torch.bfloat16, device="cuda", **sizes)
    spread, whole = (results(name, given, monkeypatch, way) for way in (True, False))
    for key, value in whole.items():
        assert same_bits(spread[key], value), key
    again = results(name, given, monkeypatch, True)
    assert all(same_bits(again[key], value) for key, value in whole.items())


def test_batches_keep_their_bits(monkeypatch):
    """Three sequences are handed over, one of them alone is not."""
    sizes = dict(B=3, T=2000, H=16, HV=32, K=128, V=128)
    given = inputs(op("gated_delta", backend="triton"), torch.bfloat16, device="cuda", **sizes)
    assert spread_at(sizes | {"N": 3, "C": 64}) and not spread_at(sizes | {"N": 1, "C": 64})
    together = results("gated_delta", given, monkeypatch, True)
    alone = results("gated_delta", {key: x[1:2] for key, x in given.items()}, monkeypatch, True)
    for key in ("o", "final_state"):
        assert same_bits(together[key][1:2], alone[key]), key


def test_in_budget():
    kernel = op("gated_delta", backend="triton")
    check(kernel, inputs(kernel, torch.bfloat16, device="cuda", **SHAPES["large teams"]))
