"""What expressions in edges are made of: functions, terms, ranges, gradients, layouts, texts."""

import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.maps import POINTS, UNARY

from chunkwise.runner.definition.functions import FUNCTIONS
from chunkwise.runner.expression import ExpressionError
from chunkwise.runner.maps.formula import make_formula
from chunkwise.runner.maps.layout import layout_of, reductions
from chunkwise.runner.maps.load_source import load_source, written
from chunkwise.runner.maps.map_stage import map_stage
from chunkwise.runner.maps.parse_formula import parse_formula
from chunkwise.runner.maps.ranges import Range, of_laws, range_of
from chunkwise.stages import _laws, _maps
from chunkwise.stages._contract import Port

ROOT = Path(__file__).parents[1]


def formula(text, params=(), axes=()):
    return make_formula(text, parse_formula(text), params, axes, "stage", "x")


def stage(text, **shapes):
    found = formula(text)
    ports = tuple((port, Port(shapes[port])) for port in found.operands)
    return map_stage(text, found.term, ports, tuple(found.scalars), Port(""))


def functions_of(path):
    return {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)}


def test_tensors_and_tiles_have_every_elementwise_function_of_definitions():
    rewritten = {"clamp"}
    wanted = {name for name, function in FUNCTIONS.items() if function.rule in ("map", "select")} - rewritten
    for path in ("stages/_maps.py", "kernels/_maps.py"):
        assert wanted <= functions_of(path), path


@pytest.mark.parametrize("name", UNARY)
def test_functions_are_those_of_definitions(name):
    x = POINTS[POINTS > 0] if name in ("log", "log2", "sqrt") else POINTS[POINTS > -1] if name == "log1p" else POINTS
    torch.testing.assert_close(getattr(_maps, name)(x), FUNCTIONS[name].compute(x), rtol=1e-14, atol=0)


SMOOTH = [name for name in UNARY if name not in ("relu", "abs")]
TEXTS = [
    *(f"{name}(x)" for name in UNARY), "x * z", "x / z", "x - z", "-x", "x ** 3", "x ** -2", "x ** 0.5", "x ** 1.5",
    "minimum(x, z)", "maximum(x, 1)", "clamp(x, 0.5, 1)", "where(x > z, x * z, z)", "elu(x) + 1", "1 + elu(-x)",
    "sigmoid(x) * tanh(x * z) - x / (1 + exp(-z))", "x * x * x", "where((x > 1) & (z < 1), x, 2)",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_gradients_are_those_of_autograd(text):
    names = [name for name in ("x", "z") if name in text.replace("exp", "").replace("max", "")]
    made = stage(text, **dict.fromkeys(names, "B T HV"))
    generator = torch.Generator().manual_seed(0)
    leaves = {name: (torch.rand(1, 7, 2, generator=generator).double() + 0.25).requires_grad_() for name in names}
    order = list(made.contract.inputs)
    y = made.reference(*(leaves[name] for name in order))["y"]
    d = torch.randn(y.shape, generator=generator).double()
    right = torch.autograd.grad(y, [leaves[name] for name in order], d, materialize_grads=True)
    read = made.reference.source.read_by_vjp[1:]
    got = made.vjp(d, *(leaves[name] for name in read), needs=frozenset(order))
    for name, each in zip(order, right):
        torch.testing.assert_close(got[name], each, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
def test_slopes_do_not_overflow(name):
    """Where a function is finite and its slope is, the slope comes out finite."""
    x = torch.tensor([-1e30, -1e4, -100.0, 100.0, 1e4, 1e30], dtype=torch.float32)
    wide = x.double().requires_grad_()
    right = torch.autograd.grad(getattr(_maps, name)(wide).sum(), wide)[0]
    got = stage(f"{name}(x)", x="T").vjp(torch.ones(6), x, needs=frozenset("x"))["x"]
    fits = right.isfinite() & (right.abs() < 3e38)
    torch.testing.assert_close(got[fits].double(), right[fits], rtol=1e-6, atol=1e-37)


LAWS = {
    "sigmoid(x)": "0..1", "2 * sigmoid(x)": "0..2", "elu(x) + 1": "> 0", "exp(x)": "> 0", "-exp(x)": "<= 0",
    "-exp(x) * softplus(z)": "<= 0", "x * x": ">= 0", "tanh(x)": "-1..1", "logsigmoid(x)": "<= 0", "relu(x)": ">= 0",
    "1 - sigmoid(x)": "0..1", "sigmoid(x) * sigmoid(z)": "0..1", "clamp(x, -5, 0)": "-5..0", "minimum(x, 0)": "<= 0",
    "where(x > 0, 1, 0.5)": "0.5..1", "abs(x) + 1": ">= 1", "exp(-softplus(x))": "0..1", "sqrt(abs(x))": ">= 0",
    "1 / (1 + exp(x))": "0..1", "x + 1": None, "silu(x)": ">= -0.28125", "x ** 2": ">= 0",
}  # fmt: skip


@pytest.mark.parametrize("text", LAWS)
def test_laws_of_results(text):
    found = formula(text)
    law = range_of(found.term, dict.fromkeys(found.operands, Range())).law
    assert (law and law.text) == LAWS[text]


def test_laws_of_operands_go_in():
    laws = {"<= 0": "exp(x)", "unit_norm(K)": "x", "0..1": "2 * x"}
    ranges = {law: of_laws([_laws.parse(law)]) for law in laws}
    assert range_of(formula("exp(x)").term, {"x": ranges["<= 0"]}).law.text == "0..1"
    assert range_of(formula("2 * x").term, {"x": ranges["unit_norm(K)"]}).law.text == "-2..2"
    assert range_of(formula("1 - x").term, {"x": ranges["0..1"]}).law.text == "0..1"


def test_a_bound_that_rounding_could_cross_is_moved():
    """exp(-5) is no number of bf16: the bound lies below what rounding makes of it."""
    law = range_of(formula("exp(x)").term, {"x": Range(-5.0, 0.0)}).law
    assert law.high == 1 and 0.9 * math.exp(-5) < law.low < torch.tensor(math.exp(-5)).bfloat16().item()


LEAVES = st.sampled_from(["x", "z", "0.5", "3", "x"])
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from([*SMOOTH, "relu", "abs"]), inner).map(lambda each: f"{each[0]}({each[1]})"),
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda each: f"({each[0]} {each[1]} {each[2]})"),
        st.tuples(st.sampled_from(["minimum", "maximum"]), inner, inner).map(
            lambda each: f"{each[0]}{each[1:]}".replace("'", "")
        ),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
@settings(max_examples=120, deadline=None)
def test_ranges_hold_whatever_the_expression(text):
    try:
        found = formula(text)
    except ExpressionError:
        return
    ranges = {"x": Range(-2.0, 3.0), "z": Range(0.0, 1.0, True)}
    result = range_of(found.term, {name: ranges[name] for name in found.operands})
    made = stage(text, **dict.fromkeys(found.operands, "T"))
    generator = torch.Generator().manual_seed(1)
    points = {
        "x": 5 * torch.rand(200, generator=generator).double() - 2,
        "z": 1 - torch.rand(200, generator=generator).double(),
    }
    y = made.reference(*(points[name] for name in found.operands))["y"]
    y = y[y.isfinite()]
    slack = 1e-9 * (1 + y.abs())
    assert ((y >= result.low - slack) & (y <= result.high + slack)).all(), (text, result)


def test_names_that_a_generated_stage_has_for_itself_are_no_trouble():
    names = ["y", "m", "tl", "rows", "b_x", "d_x", "x", "t0", "n1", "c0"]
    made = stage_of_names(names)
    ports = list(made.contract.inputs)
    assert len(set(ports)) == len(names) and not {"y", "d_x", "m", "tl", "t0"} & set(ports)
    values = [torch.full((1,), float(n), dtype=torch.float64) for n in range(len(names))]
    assert made.reference(*values)["y"].item() == sum(range(len(names)))


def stage_of_names(names):
    text = " + ".join(names)
    found = formula(text)
    return map_stage(text, found.term, tuple((port, Port("T")) for port in found.operands), (), Port(""))


def test_stage_port_and_a_name_like_it():
    assert set(formula("out.o * out_o").operands) == {"out_o", "x_out_o"}


def test_segments():
    layout = layout_of({"o": ("B", "T", "HV", "V"), "w": ("V",), "h": ("HV",), "b": ("B", "T")})
    assert layout.segments == ((0, 1), (2,), (3,))
    assert layout.missing("h") == (0, 1, 3) and layout.reduced == ("w", "h", "b")
    assert reductions(layout, "w") == [((), (0, 1, 2), (3,), True)]
    assert reductions(layout, "h") == [((), (0, 1), (2,), True)]
    assert reductions(layout, "b") == [((0, 1), (2,), (), False)]


def test_source_is_written_again_where_it_was_changed(tmp_path):
    file = written(tmp_path / "a.py", "x = 1\n")
    file.write_text("x = 2\n")
    assert written(file, "x = 1\n").read_text() == "x = 1\n"


def test_a_cache_that_cannot_be_written(monkeypatch):
    monkeypatch.setenv("CHUNKWISE_CACHE", "/proc/none")
    assert load_source("value = 17  # of this test alone\n").value == 17


COMPILE = """
import json, sys, torch
from chunkwise.runner import load
from chunkwise.runner.compiling.compile_kernel import compile_launch
from chunkwise.runner.compiling.meta_launches import meta_launches

axes, found = dict(B=1, T=8192, H=16, HV=32, K=128, V=128, C=64), []
for node in load(sys.argv[1]).whole.nodes.values():
    for backward, launchers in ((False, node.stage.launchers), (True, node.stage.vjp_launchers)):
        if ":" in node.id:
            config = launchers[0].configs(axes, "sm_90")[0]
            arguments = launchers[0], backward, axes, torch.bfloat16, "packed", config
            for launch in meta_launches(node.stage.contract, *arguments):
                for arch in (80, 90, 100):
                    compiled = compile_launch(launch, arch)
                    found.append([node.id, launch.kernel.__name__, arch, compiled.spills, compiled.error])
print(json.dumps(found))
"""
COMPILED = """\
schema: pipeline/v1
name: compiled
inputs: {o: B T HV V, z: B T HV V, w: V, a: B T HV, A_log: {shape: HV, dtype: f32}}
stages: {s: {use: sigmoid, in: {x: -exp(A_log) * softplus(a)}}}
outputs: {y: s.y, u: o * silu(z) * w}
"""


def test_kernels_compile_without_spills(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "compiled.yaml").write_text(COMPILED)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    words = [sys.executable, "-c", COMPILE, str(tmp_path / "compiled.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    found = json.loads(done.stdout)
    assert {each[2] for each in found} == {80, 90, 100} and len({each[1] for each in found}) == 4
    assert [each for each in found if each[3] or each[4]] == []
