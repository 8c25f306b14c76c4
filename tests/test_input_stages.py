"""The input side of real models, l2norm, sigmoid, decay_gate, and the gradient of the chunk sum: hard numbers."""

import math

import pytest
import torch

from chunkwise.stages import chunk_local_cumsum, decay_gate, l2norm, sigmoid

ALL = frozenset({"x", "a", "A_log", "dt_bias"})


def gradients_agree(stage, inputs, **params):
    """The stage's vjp against autograd of its reference, float64."""
    inputs = {name: x.double().requires_grad_() for name, x in inputs.items()}
    (out,) = stage.reference(**inputs, **params).values()
    d_out = torch.randn_like(out)
    expected = dict(zip(inputs, torch.autograd.grad(out, list(inputs.values()), d_out), strict=True))
    found = stage.vjp(d_out, *inputs.values(), needs=frozenset(inputs), **params)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-10)


def test_vjp_equals_autograd():
    torch.manual_seed(0)
    gradients_agree(l2norm, {"x": torch.randn(2, 5, 3, 48)}, eps=1e-6)
    gradients_agree(sigmoid, {"x": 10 * torch.randn(2, 5, 3)})
    gradients_agree(chunk_local_cumsum, {"x": -150 * torch.rand(2, 37, 3)}, C=16)
    gate = {"a": 8 * torch.randn(2, 9, 3), "A_log": torch.randn(3), "dt_bias": torch.randn(3)}
    gradients_agree(decay_gate, gate)


@pytest.mark.parametrize("amplitude", [1e-3, 1e-4])
def test_l2norm_keeps_eps_inside_the_root(amplitude):
    """N21."""
    x = amplitude * torch.randn(1, 3, 2, 128, dtype=torch.float64)
    expected = x / torch.sqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(l2norm.reference(x, eps=1e-6)["y"], expected, rtol=1e-14, atol=0)
    assert amplitude == 1e-3 or expected.norm(dim=-1).max() < 0.9


def test_l2norm_of_a_zero_row_has_a_finite_gradient():
    """N22: dy / sqrt(eps), and rows beside it are as they were."""
    x = torch.randn(1, 2, 1, 16, dtype=torch.float64)
    d_y = torch.randn_like(x)
    beside = l2norm.vjp(d_y, x, needs=ALL, eps=1e-6)["x"][:, 1]
    x[:, 0] = 0
    d_x = l2norm.vjp(d_y, x, needs=ALL, eps=1e-6)["x"]
    torch.testing.assert_close(d_x[:, 0], d_y[:, 0] * 1e3)
    assert torch.equal(d_x[:, 1], beside)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_decay_gate_has_no_inf_times_zero(dtype):
    """N17: A_log = 100 and a = -200 is a decay of 1; beside it, a gate that overflows float32 stays finite."""
    a = torch.tensor([-200.0, 50.0], dtype=dtype).view(1, 1, 2).requires_grad_()
    A_log = torch.full([2], 100.0, dtype=dtype, requires_grad=True)
    dt_bias = torch.zeros(2, dtype=dtype, requires_grad=True)
    g = decay_gate.reference(a, A_log, dt_bias)["g"]
    assert torch.exp(g).flatten().tolist() == [1.0, 0.0]
    assert g.isfinite().all()
    for gradient in torch.autograd.grad(g.sum(), [a, A_log, dt_bias]):
        assert gradient.isfinite().all()
    for gradient in decay_gate.vjp(torch.ones_like(g), a, A_log, dt_bias, needs=ALL).values():
        assert gradient.isfinite().all()


def test_decay_gate_is_the_textbook_form_where_that_is_safe():
    a = torch.linspace(-14.9, 60, 200, dtype=torch.float64).view(1, 100, 2)
    A_log, dt_bias = torch.tensor([-1.0, 2.0]).double(), torch.tensor([0.0, 0.5]).double()
    expected = -torch.exp(A_log) * torch.log1p(torch.exp(a + dt_bias))
    torch.testing.assert_close(decay_gate.reference(a, A_log, dt_bias)["g"], expected, rtol=1e-13, atol=0)


def test_suffix_sums_are_summed_from_the_end():
    """N7: 32 x 1e8 before 32 ones; total minus prefix would give the ones as 0 in float32."""
    d_y = torch.cat([torch.full([32], 1e8), torch.ones(32)]).view(1, 64, 1)
    d_x = chunk_local_cumsum.vjp(d_y, torch.zeros_like(d_y), needs=ALL, C=64)["x"]
    assert torch.equal(d_x[0, 32:, 0], torch.arange(32, 0, -1).float() * math.log2(math.e))


def test_a_clamped_step_has_no_gradient():
    x = torch.tensor([-1.0, -3e37, -1.0]).view(1, 3, 1)
    d_x = chunk_local_cumsum.vjp(torch.ones_like(x), x, needs=ALL, C=16)["x"]
    torch.testing.assert_close(d_x.flatten() / math.log2(math.e), torch.tensor([3.0, 0.0, 1.0]))
