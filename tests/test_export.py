"""``export``: a file that runs without the runner, formatted, and equal to the op bit by bit."""

import ast
import json
import math
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from support.exported import check_exported, module_of, ruff
from support.ops import PIPELINES, has_gradient_kernels, inputs, op, refusal

from chunkwise.runner import load
from chunkwise.runner.exporting.export import BACKENDS, export
from chunkwise.runner.exporting.python_text import Items, call, expression, import_from, names_list
from chunkwise.runner.expression import evaluate_number, parse_expression
from chunkwise.runner.main import main
from chunkwise.runner.stage_files import stage_library

ROOT = Path(__file__).parents[1]
SIZES = dict(B=2, T=70, H=1, HV=2, K=24, V=20)
for_each = pytest.mark.parametrize("name", PIPELINES)

TINY = """schema: pipeline/v1
name: {name}
summary: for a test
source: none
axes: {{C: 16}}
inputs:
  q: B T H K
  k: B T H K
  v: B T HV V
  g: {{shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0", optional: true, default: 0}}
params: {{scale: "min(K, 4) ** -0.5 * 2", more: scale + 1}}
constraints: ["is_power_of_two(H) & (ceil_div(K, 2) <= HV * 100)"]
definition:
  state: {{S: "zeros(K, V)"}}
  step: [S = exp(g) * S, "S = S + outer({keys}, v)", o = scale * (q @ S)]
  final: {{final_state: S}}
stages:
{act}  cumsum: {{use: chunk_local_cumsum, in: {{x: g}}}}
  scan: {{use: chunk_h, in: {{k: {k}, v: v, g: cumsum.y}}, recompute: true}}
  out: {{use: chunk_o, in: {{q: q, k: {k}, v: v, h: scan.h, g: cumsum.y}}, with: {{scale: "scale * more / more"}}}}
outputs: {{o: out.o, final_state: scan.final_state}}
"""


@pytest.fixture
def tiny(tmp_path):
    """A pipeline without the l2norm of its keys; its gate may be left out, which leaves out a stage."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.format(name="tiny", keys="k", k="k", act=""))
    return path


@for_each
@pytest.mark.parametrize("backend", BACKENDS)
def test_formatted_and_free_of_the_runner(name, backend, tmp_path):
    text = export(op(name), backend)
    assert "chunkwise.runner" not in text and max(map(len, text.splitlines())) <= 120
    packages = {
        each.module if isinstance(each, ast.ImportFrom) else each.names[0].name
        for each in ast.walk(ast.parse(text))
        if isinstance(each, (ast.Import, ast.ImportFrom))
    }
    allowed = {"chunkwise.stages", "chunkwise.stages._seqs", "torch", "torch.autograd.function", "inspect", "functools"}
    assert packages <= allowed | {"triton"}
    assert ruff("format", text) == text
    assert "All checks passed" in ruff("check", text)


@for_each
@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_reference_equals_the_op(name, io, tmp_path):
    check_exported(op(name), "reference", inputs(op(name), io, **SIZES), tmp_path)


@for_each
def test_without_optional_inputs(name, tmp_path):
    """Left out of a call, and left out of the file."""
    optional = [each.name for each in op(name).spec.inputs.values() if each.optional]
    given = inputs(op(name), absent=optional, **SIZES)
    check_exported(op(name), "reference", given, tmp_path)
    check_exported(op(name), "reference", given, tmp_path, without=optional)
    (signature,) = re.findall(rf"^def {name}\((.*)\):$", export(op(name), without=optional), re.MULTILINE)
    assert all(f"{each}=None" not in signature for each in optional)


@for_each
@pytest.mark.parametrize("only", ["o", "final_state"])
def test_loss_of_one_output(name, only, tmp_path):
    check_exported(op(name), "reference", inputs(op(name), **SIZES), tmp_path, only=only)


@for_each
def test_some_outputs(name, tmp_path):
    given = inputs(op(name), **SIZES)
    check_exported(op(name), "reference", given, tmp_path, outputs=["o"])
    assert "scan_final_state" not in export(op(name), outputs=["o"])


def test_params_strides_and_empty_tensors(tmp_path):
    given = inputs(op("gated_delta", 16), **SIZES)
    check_exported(op("gated_delta", 16), "reference", given, tmp_path, dict(scale=0.3))
    views = {n: x.transpose(0, 1).contiguous().transpose(0, 1) for n, x in given.items()}
    check_exported(op("gated_delta", 16), "reference", views, tmp_path)
    for sizes in (dict(T=0), dict(B=0)):
        check_exported(op("gated_delta", 16), "reference", inputs(op("gated_delta"), **{**SIZES, **sizes}), tmp_path)


def test_only_the_gradients_that_are_asked_for(tmp_path):
    function = module_of(export(op("gated_delta"), "reference"), tmp_path).gated_delta
    given = inputs(op("gated_delta"), **SIZES)
    o, state = function(**given)
    assert not o.requires_grad and not state.requires_grad
    o, _ = function(**{**given, "g": given["g"].clone().requires_grad_()})
    (d_g,) = torch.autograd.grad(o.sum(), [leaf for leaf in o.grad_fn.next_functions if leaf[0]][0][0].variable)
    assert d_g.shape == given["g"].shape and d_g.any()


def test_the_gradient_of_a_gradient_is_refused(tmp_path):
    function = module_of(export(op("gated_delta"), "reference"), tmp_path).gated_delta
    given = inputs(op("gated_delta"), **SIZES)
    q = given["q"].requires_grad_()
    (d_q,) = torch.autograd.grad(function(**given)[0].square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        d_q.sum().backward()


@pytest.mark.parametrize("wrong, named", [
    (dict(q=None), "q must be a tensor"),
    (dict(v=torch.zeros(2, 70, 3, 20)), "g must be"),
    (dict(beta=torch.zeros(2, 70, 2, 1)), "beta must be"),
    (dict(k=torch.zeros(2, 70, 1, 24, dtype=torch.bfloat16)), "k must be torch.float32"),
    (dict(initial_state=torch.zeros(3, 2, 24, 20)), "initial_state must be"),
    (dict(g=torch.zeros(2, 70, 2, device="meta")), "g must be torch.float32 on cpu"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(wrong, named, tmp_path):
    function = module_of(export(op("gated_delta"), "reference"), tmp_path).gated_delta
    with pytest.raises(ValueError, match=named):
        function(**{**inputs(op("gated_delta"), **SIZES), **wrong})


def test_sizes_that_break_a_constraint_are_refused(tmp_path):
    function = module_of(export(op("gated_delta"), "reference"), tmp_path).gated_delta
    with pytest.raises(ValueError, match="HV % H == 0 does not hold for H = 2, HV = 3"):
        function(**inputs(op("gated_delta"), **{**SIZES, "H": 2, "HV": 3}))


def test_kernels_refuse_what_they_do_not_take(tmp_path):
    pytest.importorskip("triton")
    function = module_of(export(op("gated_delta"), "triton"), tmp_path).gated_delta
    with pytest.raises(ValueError, match="the kernels run on a GPU"):
        function(**inputs(op("gated_delta"), **SIZES))


def test_an_optional_input_that_brings_a_stage_along_is_decided_by_the_file(tiny, tmp_path):
    found = load(tiny, backend="reference")
    given = inputs(found, **{**SIZES, "T": 20})
    assert "g=None" not in export(found, "reference")
    check_exported(found, "reference", given, tmp_path)
    without = export(found, "reference", without=["g"])
    assert "chunk_local_cumsum" not in without and "the optional input g" in without
    check_exported(found, "reference", {**given, "g": None}, tmp_path, without=["g"])


SILU = '''"""SiLU: y = x / (1 + exp(-x))."""

import torch

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K")}, flops="5 * B * T * H * K")


def reference(x):
    """x, y [B, T, H, K]."""
    return {"y": x * torch.sigmoid(x)}
'''


@pytest.fixture
def silu(tmp_path):
    """A pipeline with a stage of one's own that has neither kernel nor vjp."""
    (tmp_path / "silu.py").write_text(SILU)
    path = tmp_path / "silu_gla.yaml"
    act = "  act: {use: silu, in: {x: k}}\n"
    path.write_text(TINY.format(name="silu_gla", keys="k * sigmoid(k)", k="act.y", act=act))
    return path


def test_a_stage_that_no_import_reaches_is_refused(silu, tmp_path):
    (found,) = refusal(export, load(silu, stages=[tmp_path]))
    assert "silu" in found.message and "entry point" in found.help and found.mark.line > 10


def test_a_stage_without_kernel_and_gradient(silu, tmp_path, monkeypatch):
    """As a package would bring it in: its reference runs, and autograd through it."""
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("silu", "silu", stage_library.GROUP)
    monkeypatch.setattr(stage_library, "entry_points", lambda group: [point])
    found = load(silu, backend="reference")
    text = export(found, "triton")
    assert "run.differentiate(" in text and "import silu\n" in text and "packed sequences (cu_seqlens)" in text
    check_exported(found, "reference", inputs(found, **{**SIZES, "T": 20}), tmp_path)


def test_names_that_the_op_does_not_have():
    (found,) = refusal(export, op("gated_delta"), without=["initial_stat"])
    assert "initial_stat" in found.message and "initial_state" in found.help
    (found,) = refusal(export, op("gated_delta"), without=["q"])
    assert "q" in found.message
    (found,) = refusal(export, op("gated_delta"), outputs=["p"])
    assert "p" in found.message


def test_command(tmp_path, capsys):
    path = tmp_path / "op.py"
    assert main(["export", "gated_delta", "-o", str(path), "--axes", "C=32", "--outputs", "o"]) == 0
    assert capsys.readouterr().out == f"wrote {path}\n"
    assert path.read_text() == export(op("gated_delta", 32), outputs=["o"])
    assert main(["export", "gated_delta", "--backend", "reference"]) == 0
    assert capsys.readouterr().out == export(op("gated_delta"), "reference")
    assert main(["export", "gated_delta", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == export(op("gated_delta"))


@pytest.mark.parametrize("argv, words", [
    (["-o", "no/such/folder/op.py"], "cannot be written: No such file"),
    (["--axes", "K=32"], "does not fix K"),
    (["--backend", "cuda"], "invalid choice"),
    (["--outputs", "x"], "has no output x"),
    (["--without", "q"], "no optional input q"),
])  # fmt: skip
def test_command_refuses(argv, words, capsys):
    assert main(["export", "gated_delta", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err


@pytest.mark.parametrize("text, python", [
    ("K ** -0.5", "K**-0.5"),
    ("(K + 1) ** 2", "(K + 1) ** 2"),
    ("-K ** 2 ** V", "-(K ** 2**V)"),
    ("1 - (2 - K) - V", "1 - (2 - K) - V"),
    ("K * (V + 2) // 3 % 5", "K * (V + 2) // 3 % 5"),
    ("ceil_div(K + 1, V)", "(-(-(K + 1) // V))"),
    ("sqrt(K) + max(K, V, 2)", "math.sqrt(K) + max(K, V, 2)"),
    ("(K < V) & (V == 4) | (K == 3)", "(K < V) & (V == 4) | (K == 3)"),
])  # fmt: skip
def test_expressions_are_python(text, python):
    assert expression(text, {}) == python
    assert eval(python, {"K": 3, "V": 4, "math": math}) == evaluate_number(parse_expression(text), {"K": 3, "V": 4})


def test_lines_are_laid_out_as_ruff_does():
    """Long calls, lists and imports; what ruff makes of them is what stands here."""
    words = [f"argument_{number}" for number in range(13)]
    for lines in (
        call("result = function(", words[:8], ")", ""),
        call("result = function(", words[:9], ")", ""),
        call("result = function(", words, ")", ""),
        call("result = function(", [Items("[]", tuple(words)), Items("{}", ('"a": 1',)), "last=2"], ")", ""),
        names_list("", words, " = ctx.saved_tensors", ""),
        names_list("del ", words[:2], "", ""),
        names_list("del ", words, "", ""),
        import_from("package", words[:3]),
        import_from("package", words),
    ):
        assert max(map(len, lines)) <= 120
        ast.parse("\n".join(lines))
        assert ruff("format", "\n".join(lines) + "\n") == "\n".join(lines) + "\n"


@pytest.mark.gpu
@for_each
@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_equal_the_op(name, io, tmp_path):
    found = op(name, backend="triton")
    check_exported(found, "triton", inputs(found, io, device="cuda", **SIZES), tmp_path)
    if not has_gradient_kernels(name):  # autograd through a reference, which knows no packed sequences
        assert "Not in this file: packed sequences (cu_seqlens)" in export(found, "triton")
        return
    given = inputs(found, io, device="cuda", **{**SIZES, "B": 1})
    check_exported(found, "triton", given | packed_state(found, given), tmp_path, dict(seqlens=(0, 33, 1)))


def packed_state(found, given):
    return {n: x[:1].expand(3, *x.shape[1:]).clone() for n, x in given.items() if n == "initial_state"}
