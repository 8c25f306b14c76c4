"""Gates from pre-activations on their kernels: number by number, relatively right however small, and never a nan."""

import pytest
import torch
from support.one_stage import stage_op

SIZES = [0.0, 1e-3, 0.5, 1.0, 5.0, 14.9, 15.1, 40.0, 80.0, 100.0, 150.0, 200.0, 1e4]
A = torch.tensor([-x for x in SIZES] + SIZES)
A_LOG = torch.tensor([-30.0, 0.0, 2.0, 80.0, 88.0, 100.0, 150.0, 1e4])
LIMIT = 1.65e38
"""Where g stops, and 1.2e-38 where float32's digits end."""


def gate(tmp_path, name, backend, dtype, a):
    """(g, its gradient by a) of a [1, rows, 8 heads] or [1, rows, 8 heads, 1]."""
    op = stage_op(tmp_path, name, backend=backend)
    per_channel = name != "decay_gate"
    leaf = a.to(dtype).view(1, -1, 1).expand(1, -1, len(A_LOG)).clone()
    leaf = (leaf[..., None] if per_channel else leaf).requires_grad_()
    bias = torch.zeros(len(A_LOG), *[1] * per_channel, dtype=dtype)
    g = op(a=leaf, A_log=A_LOG.to(dtype), dt_bias=bias).g
    g.sum().backward()
    return g.detach().double(), leaf.grad.double()


@pytest.mark.parametrize("name", ["decay_gate", "kda_gate", "kda_gate_bounded"])
def test_every_number_is_relatively_right(name, tmp_path):
    found = gate(tmp_path, name, "interpret", torch.float32, A)
    right = gate(tmp_path, name, "reference", torch.float64, A)
    for x, truth in zip(found, right, strict=True):
        assert x.isfinite().all()
        inside = (truth.abs() > 1.2e-38) & (truth.abs() < LIMIT)
        # an exponent's own rounding: fma rounds twice here, and exponents reach 100
        assert ((x - truth).abs() <= 1e-5 * truth.abs())[inside].all()
        assert (x.abs() >= LIMIT)[truth.abs() >= LIMIT].all() and (x.abs() < 2e-38)[truth.abs() <= 1.2e-38].all()


@pytest.mark.parametrize("name", ["decay_gate", "kda_gate", "kda_gate_bounded"])
def test_a_nan_stays_one(name, tmp_path):
    g, _ = gate(tmp_path, name, "interpret", torch.float32, torch.tensor([1.0, torch.nan, -1.0]))
    assert g[:, 1].isnan().all() and g[:, ::2].isfinite().all()
