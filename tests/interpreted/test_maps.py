"""Expressions in edges on their kernels: functions to float32's last digits, sums by every layout, packed, empty."""

import math

import pytest
import torch
from support.exported import check_exported
from support.maps import POINTS, UNARY, expression_op, of_text
from support.ops import check, inputs

from chunkwise.runner import load

SIZES = dict(B=2, T=9, HV=3, V=12)
PACKED = dict(B=1, T=10, HV=2, V=12)
LAYOUTS = {
    "per head": "o * w",
    "per token": "o * b + silu(o)",
    "per head and width": "tanh(o) * f",
    "per width": "o * silu(z) * n",
    "several at once": "o * b + f * c - e / (2 + abs(d)) + t * w * scale",
}
SHAPES = {
    "o": "B T HV V", "z": "B T HV V", "w": "HV", "b": "B T", "f": "HV V", "n": "V", "c": "B HV", "e": "B T V",
    "d": "B V", "t": "T",
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions(name, tmp_path):
    op = of_text(f"{name}(x)", {"x": "B T HV"}, tmp_path, "interpret")
    x = POINTS[POINTS > 0] if name in ("log", "log2", "sqrt") else POINTS[POINTS > -1] if name == "log1p" else POINTS
    truth = of_text(f"{name}(x)", {"x": "B T HV"}, tmp_path, "reference")
    got = op(x=x.float().view(1, -1, 1)).y.double()
    right = truth(x=x.float().double().view(1, -1, 1)).y
    fits = right.abs() < 3.4e38
    error = (got - right).abs() / right.abs().clamp(min=1e-30)
    allowed = (6 + 1.5 * x.abs().view(1, -1, 1)) * 2**-24  # an exponent's own error: fma rounds twice here
    assert (error < allowed)[fits & (right.abs() > 1.2e-38)].all()
    assert torch.equal(got[~fits], right[~fits].float().double())


@pytest.mark.parametrize("exponent", [2, 3, -1, 0.5, -0.5, 1.5, 1 / 3, 2.7])
def test_powers(exponent, tmp_path):
    op = of_text(f"x ** {exponent}", {"x": "B T HV"}, tmp_path, "interpret")
    x = torch.logspace(-8, 8, 101, dtype=torch.float64).float()
    right = x.double() ** float(f"{exponent}")
    error = ((op(x=x.view(1, -1, 1)).y.view(-1).double() - right) / right).abs()
    assert (error < (6 + right.log2().abs()) * 2**-24).all()  # as above


@pytest.mark.parametrize("seqlens", [None, (4, 0, 3)], ids=["plain", "packed"])
@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_sums_of_gradients(text, seqlens, tmp_path):
    op = expression_op(text, SHAPES, tmp_path, "interpret")
    check(op, inputs(op, seqlens=seqlens, **(SIZES if seqlens is None else PACKED)), seqlens=seqlens, backward=True)


def test_without_tokens(tmp_path):
    op = expression_op(LAYOUTS["per width"], SHAPES, tmp_path, "interpret")
    leaves = {name: x.requires_grad_() for name, x in inputs(op, **SIZES | dict(T=0)).items()}
    op(**leaves).y.sum().backward()
    assert leaves["n"].grad.eq(0).all() and leaves["o"].grad.shape == (2, 0, 3, 12)


def test_columns_in_blocks(tmp_path):
    """More columns than one tile holds, and a state of many sequences."""
    op = expression_op("o * b", SHAPES, tmp_path, "interpret")
    check(op, inputs(op, B=1, T=3, HV=5, V=300), backward=True)


def test_extremes(tmp_path):
    """Nothing overflows on the way to a finite gradient."""
    op = of_text("softplus(x) + sigmoid(x) + tanh(x) + silu(x)", {"x": "B T HV"}, tmp_path, "interpret")
    x = torch.tensor([-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4]).view(1, -1, 1).requires_grad_()
    op(x=x).y.sum().backward()
    assert x.grad.isfinite().all() and math.isclose(x.grad[0, -1, 0], 2.0) and x.grad[0, 0, 0] == 0


@pytest.mark.parametrize("seqlens", [None, (4, 0, 3)], ids=["plain", "packed"])
def test_exported_file(seqlens, tmp_path):
    """With chunks, for packed sequences: an exported file packs only where there are."""
    path = tmp_path / "chunked.yaml"
    path.write_text(CHUNKED)
    op = load(path, backend="interpret")
    given = inputs(op, seqlens=seqlens, **(SIZES if seqlens is None else PACKED), H=1, K=16)
    check_exported(op, "triton", given, tmp_path, dict(seqlens=seqlens) if seqlens else None)


CHUNKED = """\
schema: pipeline/v1
name: chunked
axes: {C: 16}
inputs: {q: B T H K, k: B T H K, v: B T HV V, w: V, h: {shape: HV, dtype: f32}}
params: {scale: 2}
stages:
  scan: {use: chunk_h, in: {k: elu(k) + 1, v: v * h}}
  out:  {use: chunk_o, in: {q: scale * q, k: elu(k) + 1, v: v * h, h: scan.h}, with: {scale: 1}}
outputs: {o: out.o * sigmoid(v) * w}
"""
