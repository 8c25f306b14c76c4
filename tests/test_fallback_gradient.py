"""A stage without a vjp trains by autograd through its reference, and says so."""

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.backward.vjp_stage import by_autograd
from chunkwise.runner.drawing.draw import draw
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.reporting.timing import time_call
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.runner.verification.verify import verify

STAGE = '''"""Cube, number by number."""

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K")}, flops="2 * B * T * H * K")


def reference(x):
    return {"y": x * x * x}
'''

PIPELINE = """schema: pipeline/v1
name: cubed_keys
summary: Linear attention with cubed keys
source: a test
axes: {C: 16}
inputs: {q: B T H K, k: B T H K, v: B T HV V}
definition:
  state: {S: "zeros(K, V)"}
  step: ["S = S + outer(k * k * k, v)", o = q @ S]
stages:
  act:  {use: cube_keys, in: {x: k}}
  scan: {use: chunk_h, in: {k: act.y, v: v}}
  out:  {use: chunk_o, in: {q: q, k: act.y, v: v, h: scan.h}, with: {scale: 1}}
outputs: {o: out.o}
"""


@pytest.fixture
def op(tmp_path):
    (tmp_path / "cube_keys.py").write_text(STAGE)
    (tmp_path / "cubed_keys.yaml").write_text(PIPELINE)
    return load(tmp_path / "cubed_keys.yaml", stages=[tmp_path])


def given(op, **sizes):
    sizes = complete(op.whole, dict(B=1, T=40, H=1, HV=2, K=4, V=6) | sizes)
    return make_inputs(op.whole, sizes, torch.float32, "cpu")


def test_it_is_verified(op):
    result = verify(op, given(op), backward=True)
    assert result.ok, result.first_bad
    assert {row.value for row in result.rows if row.id == "act.vjp"} == {"d_x"}


@pytest.mark.parametrize("seqlens", [None, (7, 0, 33)])
def test_it_trains(op, seqlens):
    inputs = {name: x.requires_grad_() for name, x in given(op).items()}
    op(**inputs, seqlens=seqlens).o.sum().backward()
    assert all(bool(x.grad.isfinite().all()) and bool(x.grad.any()) for x in inputs.values())


def test_a_gradient_where_autograd_is_off(op):
    """As below a registered op that the compiler runs; not zeros."""
    x = torch.randn(1, 3, 1, 4)
    with torch.inference_mode():
        found = by_autograd(op.stages["cube_keys"], {"x": x, "d_y": torch.ones_like(x)}, frozenset({"x"}))
    torch.testing.assert_close(found["x"].clone(), 3 * x * x)


def test_table_and_graph_say_so(op):
    timings = time_call(op.bind(given(op, T=16)), backward=True)
    assert [stage.stage for stage in timings.stages if stage.id == "act.vjp"] == ["cube_keys.vjp (autograd)"]
    assert "cube_keys.vjp (autograd)" in draw(op.trainable_graph(), "mermaid").text
