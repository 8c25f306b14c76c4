"""verify says which file is wrong: a stage's vjp, kernel, promise or narrow reference; or graph against definition."""

from pathlib import Path

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.diagnostics.render_errors import render
from chunkwise.runner.verification.verify import verify

STAGE = '''\
"""SiLU, number by number: y = x / (1 + exp(-x))."""

import torch

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(
    inputs={"x": Port("B T H K")},
    outputs={"y": Port("B T H K")},
)


def reference(x):
    return {"y": x * torch.sigmoid(x)}


def vjp(d_y, x, *, needs):
    s = torch.sigmoid(x)
    return {"x": d_y * s * (1 + x * (1 - s))}
'''
PIPELINE = """\
schema: pipeline/v1
name: op
inputs:
  x: {shape: B T H K, where: ">= -9"}
  z: B T H K
definition:
  step:
    - o = silu(x) - z
stages:
  act: {use: silu, in: {x: x}}
  neg: {use: minus, in: {a: act.y, b: z}}
outputs: {o: neg.o}
"""
MINUS = '''\
"""Their difference: o = a - b."""

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"a": Port("B T H K"), "b": Port("B T H K")}, outputs={"o": Port("B T H K")})


def reference(a, b):
    return {"o": a - b}


def vjp(d_o, *, needs):
    return {"a": d_o, "b": -d_o}
'''
X = torch.linspace(-4, 4, 2 * 5 * 3 * 8).view(2, 5, 3, 8)


@pytest.fixture
def found(tmp_path, monkeypatch):
    """The verification of the op with one part of its files replaced."""
    monkeypatch.chdir(tmp_path)

    def run(old="", new="", io=torch.float32, pipeline=PIPELINE, **inputs):
        files = {"silu.py": STAGE, "minus.py": MINUS, "op.yaml": pipeline}
        assert not old or sum(text.count(old) for text in files.values()) == 1
        for name, text in files.items():
            Path(name).write_text(text.replace(old, new) if old else text)
        op = load("op.yaml", stages=[tmp_path])
        return verify(op, {"x": X.to(io), "z": X.flip(1).to(io)} | inputs, backward=True)

    return run


def test_nothing_is_wrong(found):
    result = found()
    assert result.ok and result.failure is None and {row.word for row in result.rows} == {"ok"}


@pytest.mark.parametrize("io, off", [
    (torch.float32, "d_y * s"), (torch.bfloat16, "d_y * s"), (torch.float64, "d_y * s"),
    (torch.bfloat16, "d_y * s * (1 + x * (1 - s)) * 1.001"),  # less than bfloat16 rounds
], ids=str)  # fmt: skip
def test_a_wrong_vjp_is_named_with_its_place(found, io, off):
    result = found("d_y * s * (1 + x * (1 - s))", off, io)
    text = render(result.failure)
    assert "stage act.vjp (silu.vjp), output d_x, is wrong: the vjp of silu, in float64, is off by" in text
    assert "\n  --> silu.py:17:5\n" in text and "\nnote: act stands here in the pipeline\n  --> op.yaml:10:3\n" in text


def test_what_the_table_shows_is_what_failed(found):
    """A wrong reference would widen its own budget; the one shown is that of the cap."""
    row = found("d_y * s * (1 + x * (1 - s))", "d_y * s").first_bad
    assert row.word == "REFERENCES OFF" and row.verdict.rel_l2_err > row.verdict.budget
    assert row.verdict.worst_slice_err > row.verdict.slice_budget


@pytest.mark.parametrize("old, new", [("{a: act.y, b: z}", "{a: z, b: act.y}"), ("silu(x) - z", "silu(x) + z")])
def test_a_graph_that_is_another_op_than_its_definition(found, old, new):
    text = render(found(old, new).failure)
    assert text.startswith("error[CW801]: the op's output o is the first out of budget")
    assert " --> op.yaml:6:1\n" in text and "every stage alone is within its budget" in text
    assert "edges of one type that are swapped" in text


def test_a_promise_that_values_break(found):
    result = found('outputs={"y": Port("B T H K")}', 'outputs={"y": Port("B T H K", where=">= 0")}')
    assert (result.first_bad.id, result.first_bad.value, result.first_bad.word) == ("act", "y", "OUT OF LAW")
    text = render(result.failure)
    assert text.startswith("error[CW802]: stage act (silu), output y, breaks its law: every value is >= 0\n")
    assert " --> silu.py:9:14\n" in text
    assert "120 of 240 values break it; the worst is act.y[0, 3, 1, 1] = -0.278453" in text


@pytest.mark.parametrize("x, least, ok", [(X, -0.3, True), (X, -0.2, False), (X - 20, -0.2, True)])
def test_a_promise_leans_on_what_comes_in(found, x, least, ok):
    """Where the input breaks its own law, the stage is not to blame."""
    result = found('outputs={"y": Port("B T H K")}', f'outputs={{"y": Port("B T H K", where=">= {least}")}}', x=x)
    assert result.ok == ok


NARROW = {
    "float": ("x * torch.sigmoid(x)", "(x * torch.sigmoid(x).float()).double()"),
    "to": ("x * torch.sigmoid(x)", "x * torch.sigmoid(x.to(torch.float32))"),
    "copied": ("x * torch.sigmoid(x)", "torch.empty(x.shape).copy_(x * torch.sigmoid(x))"),
}


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("old, new", NARROW.values(), ids=NARROW)
def test_a_truth_with_fewer_digits(found, old, new, io):
    with pytest.raises(ChunkwiseError) as caught:
        found(old, new, io)
    assert str(caught.value).startswith("error[CW506]: act: silu rounds float64 numbers to float32\n")
    assert "\n  --> silu.py:14:5\n" in str(caught.value)


@pytest.mark.parametrize("io", [torch.float32, torch.float64], ids=str)
def test_a_vjp_that_gives_another_gradient_alone(found, io):
    """A call that needs the gradient of b alone would get it twice; with both all is right."""
    result = found('"b": -d_o', '"b": -d_o * (2 if needs == {"b"} else 1)', io)
    bad = result.first_bad
    assert (bad.id, bad.value, bad.word, bad.verdict.rel_l2_err) == ("neg.vjp", "d_b", "OTHER ALONE", 1)
    text = render(result.failure)
    assert "neg.vjp (minus.vjp), output d_b, is wrong: asked for alone, in float64, it is off by 1.0e+00" in text
    assert "\n  --> minus.py:12:5\n" in text


def test_constants_in_float32_round_nothing(found):
    assert found("x * torch.sigmoid(x)", "x * torch.sigmoid(x) * torch.ones(1) + torch.zeros_like(x)").ok


NO_TRUTH = {
    "nan": ("x * torch.sigmoid(x)", "(x * torch.sigmoid(x)).where(x < 3.9, float('nan'))", "itself gives nan or inf"),
    "past float32": ("x * torch.sigmoid(x)", "x * torch.sigmoid(x) * 1e80", "e+80 here, past the 3.4e+38 of float32"),
    "random": ("x * torch.sigmoid(x)", "x * torch.sigmoid(x) * (1 + torch.rand(()))", "on the same inputs differ"),
    "a state of its own": (
        'return {"y": x * torch.sigmoid(x)}',
        'CALLS.append(1)\n    return {"y": x * torch.sigmoid(x) * len(CALLS)}\n\n\nCALLS = []',
        "on the same inputs differ",
    ),
}


@pytest.mark.parametrize("old, new, help", NO_TRUTH.values(), ids=NO_TRUTH)
def test_a_reference_that_is_no_truth(found, old, new, help):
    text = render(found(old, new).failure)
    assert "stage act (silu), output y, is the first out of budget" in text and "\n  --> silu.py:13:5\n" in text
    assert help in text and "narrower" not in text


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_an_input_that_is_not_finite(found, number):
    """No stage is to blame for what becomes of it. -inf, which a gate may be, is named where nothing else is wrong."""
    x, z = X.clone(), X.clone()
    z[1, 2, 0, 3], x[0, 1, 2, 4] = number, -float("inf")
    text = render(found(x=x, z=z).failure)
    assert f"\nhelp: correct the input: z[1, 2, 0, 3] = {number}" in text and " --> op.yaml:5:3\n" in text
    text = render(found(x=x).failure)
    assert text.startswith("error[CW801]: stage act (silu), output y, is the first out of budget: 1 values are not fin")
    assert "\nhelp: correct the input: x[0, 1, 2, 4] = -inf" in text and " --> op.yaml:4:3\n" in text


AMPLIFYING = """\
schema: pipeline/v1
name: op
inputs: {x: B T H K, z: B T H K}
definition:
  step:
    - o = (silu(x) + 10000000) - (z + 10000000)
stages:
  act:  {use: silu, in: {x: x}}
  diff: {use: minus, in: {a: act.y + 10000000, b: z + 10000000}}
outputs: {o: diff.o}
"""


def test_an_op_that_amplifies_rounding(found):
    """Its graph is not to blame: in float64 it is the definition."""
    text = render(found(pipeline=AMPLIFYING).failure)
    assert text.startswith("error[CW801]: the op's output o is the first out of budget: the references themselves")
    assert "note: in float64 the graph and the definition are one op" in text and "swapped" not in text
