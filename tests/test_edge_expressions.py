"""Expressions in edges: what is refused, with exact texts and places; what becomes of those that are not."""

import pickle

import pytest
import torch
from support.exported import check_exported, ruff
from support.ops import check, inputs

from chunkwise.runner import load
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.diagnostics.render_errors import render
from chunkwise.runner.drawing.build_picture import build_picture
from chunkwise.runner.exporting.export import export
from chunkwise.runner.graphs.build_graph import build_graph, check_graphs
from chunkwise.runner.loading.load_spec import parse_spec
from chunkwise.runner.stage_files.stage_library import find_stages

STAGES = find_stages()
FILE = """\
schema: pipeline/v1
name: op
axes: {C: 16}
inputs:
  k: B T H K
  v: B T HV V
  a: B T HV
  g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  w: {shape: K, dtype: f32, optional: true}
  i: {shape: K, dtype: int, optional: true}
params: {scale: 2}
stages:
  cumsum: {use: chunk_local_cumsum, in: {x: GATE}}
  unit:   {use: l2norm, in: {x: KEYS}}
outputs: {y: cumsum.y, u: LAST, n: unit.y}
"""


def text_of(gate="g", keys="k", last="unit.y"):
    return FILE.replace("GATE", gate).replace("KEYS", keys).replace("LAST", last)


def errors(**parts):
    """The errors of a file with these sources, those about inputs that nothing reads left out."""
    with pytest.raises(ChunkwiseError) as caught:
        check_graphs(parse_spec(text_of(**parts), "op.yaml"), STAGES)
    return [each for each in caught.value.diagnostics if each.code != "CW229"]


def graph_of(absent=(), **parts):
    """The graph without the check that every input is read."""
    head, _, tail = text_of(**parts).partition("inputs:\n")
    lines, rest = tail.split("params:")[0].splitlines(), tail[tail.index("params:") :]
    used = [line for line in lines if line.split(":")[0].strip() in names_in(rest)]
    text = "\n".join([f"{head}inputs:", *used, rest])
    return build_graph(parse_spec(text, "op.yaml"), STAGES, frozenset(absent))


def names_in(text):
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


EXACT = {
    "unknown name": (dict(keys="elu(kk) + 1"), """\
error[CW223]: there is no input kk
  --> op.yaml:14:37
   |
14 |   unit:   {use: l2norm, in: {x: elu(kk) + 1}}
   |                                     ^^
help: did you mean k?"""),
    "unknown port": (dict(last="unit.y + cumsum.z"), """\
error[CW222]: cumsum (chunk_local_cumsum) has no output z
  --> op.yaml:15:36
   |
15 | outputs: {y: cumsum.y, u: unit.y + cumsum.z, n: unit.y}
   |                                    ^^^^^^^^
help: its outputs are y"""),
    "unknown stage": (dict(last="2 * units.y"), """\
error[CW223]: there is no stage entry units
  --> op.yaml:15:31
   |
15 | outputs: {y: cumsum.y, u: 2 * units.y, n: unit.y}
   |                               ^^^^^^^
help: did you mean unit?"""),
    "exponent": (dict(keys="k ** 1000"), """\
error[CW213]: stages.unit.in.x: exponent 1000 is beyond 64
  --> op.yaml:14:38
   |
14 |   unit:   {use: l2norm, in: {x: k ** 1000}}
   |                                      ^^^^
help: as q, or cumsum.y, or elu(k) + 1"""),
    "reduction": (dict(keys='"k / norm(k, axis=K)"'), """\
error[CW213]: stages.unit.in.x: norm goes over an axis, and an edge's expression is elementwise
  --> op.yaml:14:38
   |
14 |   unit:   {use: l2norm, in: {x: "k / norm(k, axis=K)"}}
   |                                      ^^^^^^^^^^^^^^^
help: the stage l2norm divides rows by their norm over K"""),
    "axes": (dict(keys="k * a"), """\
error[CW301]: a [B T HV] and k [B T H K] do not broadcast: neither has the axes of both
  --> op.yaml:14:37
   |
14 |   unit:   {use: l2norm, in: {x: k * a}}
   |                                     ^
note: a gets its shape here
 --> op.yaml:7:6
  |
7 |   a: B T HV
  |      ^^^^^^
note: k gets its shape here
 --> op.yaml:5:6
  |
5 |   k: B T H K
  |      ^^^^^^^
help: H key heads and HV value heads are two axes: an expression repeats no head"""),
    "unit dropped": (dict(gate="a * g"), """\
error[CW304]: the expression drops the unit of g, log_decay/ln/token
  --> op.yaml:13:49
   |
13 |   cumsum: {use: chunk_local_cumsum, in: {x: a * g}}
   |                                                 ^
note: g gets its unit here
 --> op.yaml:8:40
  |
8 |   g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  |                                        ^^^^^^^^^^^^^^^^^^
help: kept are exp of a log decay per token, log of a decay, multiples that are proven positive, and sums"""),
    "range": (dict(gate="-a"), """\
error[CW305]: cumsum.x: the expression is not known to keep <= 0
  --> op.yaml:13:45
   |
13 |   cumsum: {use: chunk_local_cumsum, in: {x: -a}}
   |                                             ^^ expected <= 0, got no promise
note: cumsum.x takes log_decay/ln/token, every value of which is <= 0
note: a promises nothing
 --> op.yaml:7:3
  |
7 |   a: B T HV
  |   ^
help: -exp(x), -softplus(x) and logsigmoid(x) are at most 0 whatever x is"""),
    "only a number": (dict(keys="2 * scale"), """\
error[CW213]: unit.x: the expression is only a number
  --> op.yaml:14:33
   |
14 |   unit:   {use: l2norm, in: {x: 2 * scale}}
   |                                 ^^^^^^^^^
help: name an input or stage.port; a stage's numbers stand under its with:"""),
    "cycle": (dict(keys="k * unit.y"), """\
error[CW226]: the stages form a cycle: unit:x -> unit -> unit:x
  --> op.yaml:14:37
   |
14 |   unit:   {use: l2norm, in: {x: k * unit.y}}
   |                                     ^^^^^^ unit.y feeds unit:x here, which closes the cycle
note: unit:x.y feeds unit here
  --> op.yaml:14:33
   |
14 |   unit:   {use: l2norm, in: {x: k * unit.y}}
   |                                 ^^^^^^^^^^"""),
    "integers": (dict(keys="k * i"), """\
error[CW302]: i holds integers
  --> op.yaml:14:37
   |
14 |   unit:   {use: l2norm, in: {x: k * i}}
   |                                     ^
help: an expression in an edge takes io and f32 operands"""),
}  # fmt: skip


@pytest.mark.parametrize("parts, text", EXACT.values(), ids=EXACT)
def test_errors(parts, text):
    assert [render(each) for each in errors(**parts)] == [text]


SHORT = {
    "(k)": "this is k itself",
    "2 * 3": "the expression is only a number",
    "k > 0": "an edge takes numbers, this is a comparison",
    "elo(k)": "no function 'elo'",
    "k ** scale": "the exponent is a number that the file writes",
    "k @ k": "'@' goes over an axis, and an edge's expression is elementwise",
    "k // 2": "'//' is for numbers, and this has tensors",
    '"exp(k, k)"': "exp takes 1 argument, got 2",
    '"where(k, 1, 0)"': "where needs a comparison first",
    "exp(k > 0)": "exp takes numbers, this is a comparison",
    '"index(k)"': "'index' belongs to the dense form",
    '"outer(k, k)"': "outer changes the axes, and an edge's expression is elementwise",
    '"softmax(k, axis=K)"': "softmax goes over an axis, and an edge's expression is elementwise",
    "unit.y.z + 1": "unexpected character '.'",
    "-" * 70 + "k": "nested deeper than 64",
}


@pytest.mark.parametrize("keys", SHORT)
def test_what_is_no_elementwise_expression(keys):
    (error,) = errors(keys=keys)
    assert (error.code, error.message, error.mark.line) == ("CW213", f"stages.unit.in.x: {SHORT[keys]}", 14)


def test_one_expression_is_computed_once_and_shown_as_itself():
    graph = graph_of(keys="elu(k) + 1", last="unit.y * (elu(k)+1)")
    assert list(graph.nodes) == ["cumsum", "unit:x", "unit", "return:u"]
    assert graph.nodes["unit:x"].stage.name == "(elu(k) + 1)"
    assert graph.nodes["unit"].inputs == {"x": "unit:x.y"} and graph.outputs["u"] == "return:u.y"
    twice = graph_of(keys="elu(k) + 1", last="elu( k )+1 + 0")
    assert list(twice.nodes) == ["cumsum", "unit:x", "unit"] and twice.outputs["u"] == "unit:x.y"


def test_dtype_unit_and_law_come_from_the_reader_and_the_operands():
    graph = graph_of(gate="-exp(a)", keys="2 * sigmoid(k)", last="exp(g)")
    types = {name: (value.dtype, value.unit, [law.text for law in value.laws]) for name, value in graph.values.items()}
    assert types["cumsum:x.y"] == ("f32", "log_decay/ln/token", ["<= 0"])
    assert types["unit:x.y"] == ("io", None, ["0..2"])
    assert types["return:u.y"] == ("io", "decay/linear/token", ["0..1"])


def test_the_same_expression_in_two_dtypes_is_two_stages():
    graph = graph_of(gate="-exp(a)", last="-exp(a)")
    assert [graph.values[f"{id}.y"].dtype for id in ("cumsum:x", "return:u")] == ["f32", "io"]


@pytest.mark.parametrize("gate", ["2 * g", "g / 3", "g + g", '"maximum(g, -5)"', "g * sigmoid(a)", "log(exp(g))"])
def test_log_decays_that_stay_log_decays(gate):
    value = graph_of(gate=gate).values["cumsum:x.y"]
    assert value.unit == "log_decay/ln/token" and value.laws[0].high == 0


def test_numbers_are_computed_once_a_call():
    node = graph_of(keys="K ** -0.5 * k * scale").nodes["unit:x"]
    assert node.params == {"c0": "K ** -0.5", "scale": "scale"}


def test_an_absent_operand_takes_its_readers_along():
    assert "unit" in graph_of(keys="k * w").nodes
    graph = graph_of(keys="k * w", absent=["w"])
    assert list(graph.nodes) == ["cumsum"] and graph.outputs["u"] is None


def test_rebuilt_where_all_that_it_reads_is_the_calls():
    graph = graph_of(keys="elu(k) + 1", last="silu(unit.y)")
    assert [graph.nodes[id].recompute for id in ("unit:x", "return:u")] == [True, False]


@pytest.fixture(scope="module")
def gated(tmp_path_factory):
    path = tmp_path_factory.mktemp("maps") / "gated.yaml"
    path.write_text(GATED)
    return load(path)


GATED = """\
schema: pipeline/v1
name: gated
axes: {C: 16}
inputs:
  q: B T H K
  k: B T H K
  v: B T HV V
  z: B T HV V
  w: V
  a: B T HV
  A_log: {shape: HV, dtype: f32}
  dt_bias: {shape: HV, dtype: f32}
params: {scale: K ** -0.5}
definition:
  state: {S: "zeros(K, V)"}
  step:
    - S = exp(-exp(A_log) * softplus(a + dt_bias)) * S
    - S = S + outer(elu(k) + 1, v)
    - o = scale * (q @ S) * silu(z) * w
stages:
  cumsum: {use: chunk_local_cumsum, in: {x: -exp(A_log) * softplus(a + dt_bias)}}
  scan:   {use: chunk_h, in: {k: elu(k) + 1, v: v, g: cumsum.y}, recompute: true}
  out:    {use: chunk_o, in: {q: scale * q, k: elu(k) + 1, v: v, h: scan.h, g: cumsum.y}, with: {scale: 1}}
outputs: {o: out.o * silu(z) * w}
"""
SIZES = dict(B=1, T=20, H=1, HV=2, K=16, V=24)


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float32])
def test_right_with_gradients(gated, io):
    check(gated, inputs(gated, io, **SIZES), backward=True)


@pytest.mark.parametrize("seqlens", [(5, 0, 3), (0,)])
def test_packed_with_gradients(gated, seqlens):
    check(gated, inputs(gated, seqlens=seqlens, **SIZES | dict(T=sum(seqlens) + 2)), seqlens=seqlens, backward=True)


def test_without_tokens(gated):
    leaves = {name: x.requires_grad_() for name, x in inputs(gated, **SIZES | dict(T=0)).items()}
    gated(**leaves).o.sum().backward()
    assert leaves["w"].grad.eq(0).all() and leaves["k"].grad.shape == leaves["k"].shape


def test_params_of_a_call(gated):
    given = inputs(gated, **SIZES)
    assert torch.allclose(gated(**given, scale=3.0).o, 3 * gated(**given, scale=1.0).o, atol=1e-5)


def test_gradcheck(gated):
    given = inputs(gated, torch.float64, **dict(B=1, T=3, H=1, HV=1, K=2, V=2))
    leaves = [x.requires_grad_() for x in given.values()]
    assert torch.autograd.gradcheck(lambda *each: gated(**dict(zip(given, each))).o, leaves)


def test_compiled_by_torch(gated):
    given = inputs(gated, **SIZES)
    compiled = torch.compile(lambda **each: gated(**each).o, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(**given), gated(**given).o)


def test_an_op_can_be_sent_and_cut_short(gated):
    given = inputs(gated, **SIZES)
    assert torch.equal(pickle.loads(pickle.dumps(gated))(**given).o, gated(**given).o)
    part = gated.until("scan")
    assert list(part.whole.nodes) == ["cumsum:x", "cumsum", "scan:k", "scan"]


def test_drawn_once_under_its_own_words(gated):
    picture = build_picture(gated.whole)
    boxes = {box.id: box.stage for box in picture.stages}
    assert boxes["scan:k"] == "(elu(k) + 1)" and "out:k" not in boxes
    assert not any(box.skipped for box in picture.stages)


def test_exported_with_its_text(gated, tmp_path):
    text = export(gated, "triton")
    assert "def scan_map_k_kernel(k, y, rows, cols: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):" in text
    assert "    b_y = _maps.elu_plus_1(b_k)\n" in text and "chunkwise.runner" not in text
    check_exported(gated, "reference", inputs(gated, **SIZES), tmp_path)


@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_exported_text_is_formatted(gated, backend):
    text = export(gated, backend)
    assert ruff("format", text) == text
    assert "All checks passed" in ruff("check", text)
