"""What ``chunkwise new`` says where no stages will do, and the stages that ``--stub`` writes in their place."""

from pathlib import Path

import pytest
import torch

from chunkwise.runner.composing.algebra import algebra
from chunkwise.runner.composing.compose import Composed, compose
from chunkwise.runner.composing.edge_expression import as_edge_expression, edge_takes, expression_leaves
from chunkwise.runner.composing.missing import missing_stage
from chunkwise.runner.composing.reached import Reached
from chunkwise.runner.composing.readings import given_outputs, read_definition
from chunkwise.runner.composing.search import LEVELS, Search
from chunkwise.runner.composing.stub import stub_of
from chunkwise.runner.composing.tiny_case import tiny_case
from chunkwise.runner.composing.torch_text import Text, Writer
from chunkwise.runner.definition import Line, evaluate, parse_definition, typecheck
from chunkwise.runner.definition.functions import FUNCTIONS
from chunkwise.runner.expression import parse_expression
from chunkwise.runner.loading.load_recurrence import parse_recurrence

from .support.recurrences import BETA, G_K, HEAD, PARAMS, SIZES, STATE, G, chunkwise, composed, here, shipped, text_of

__all__ = ["chunkwise", "here"]

BEFORE = text_of(G + STATE, ["o = scale * (q @ S)", "S = exp(g) * S + outer(k, v)"])


def test_an_output_that_nothing_reads(chunkwise):
    Path("a.yaml").write_text(BEFORE)
    code, out, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert (code, out) == (1, "") and not Path("fresh.yaml").exists()
    assert (
        err.strip()
        == """\
error[CW805]: no stages read the output o
  --> a.yaml:14:7
   |
14 |     - o = scale * (q @ S)
   |       ^^^^^^^^^^^^^^^^^^^
note: S: decay exp(g), one for each head and token; a write does not read the state; o computed before it is written
note: found: the output final_state, by chunk_local_cumsum, chunk_h
note: found: S as it enters each chunk, by chunk_local_cumsum, chunk_h
note: a new stage would need: q [B T H K] io, g [B T HV] f32 log_decay/ln/token, k [B T H K] io, v [B T HV V] io, \
h [B NT HV K V] io state/chunk_entry, with scale -> o [B T HV V] io
help: --stub writes that stage with a reference in PyTorch, and the pipeline that uses it"""
    )


def test_a_value_that_nothing_gives(chunkwise):
    Path("a.yaml").write_text(text_of(STATE, ["S = S + outer(k / norm(k, axis=K), v)", "o = scale * (q @ S)"]))
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 1
    assert (
        err.strip()
        == """\
error[CW805]: no stage gives k / norm(k, axis=K)
  --> a.yaml:13:21
   |
13 |     - S = S + outer(k / norm(k, axis=K), v)
   |                     ^^^^^^^^^^^^^^^^^^^
note: S: no decay; a write does not read the state; read after it is written
note: a new stage would need: k [B T H K] io -> y [B T H K] io
help: --stub writes that stage with a reference in PyTorch, and the pipeline that uses it"""
    )


@pytest.mark.parametrize("inputs, place, message, help", [
    ("  g: B T HV\n" + STATE, "g: B T HV", "S decays by exp(g), and the input g",
     'dtype: f32, unit: log_decay/ln/token, where: "<= 0"'),
    (G.replace(', where: "<= 0"', "") + STATE, "g: {", "S decays by exp(g), and the input g",
     'dtype: f32, unit: log_decay/ln/token, where: "<= 0"'),
    ("  g: HV\n" + STATE, "g: HV", "S decays by exp(g), and the input g",
     'dtype: f32, unit: log_decay/ln/slope, where: "<= 0"'),
    (G + "  initial_state: {shape: N HV K V, optional: true}\n", "initial_state: {",
     "S starts from initial_state, and the input initial_state", "dtype: f32, unit: state/sequence_start"),
])  # fmt: skip
@pytest.mark.parametrize("stub", [(), ("--stub",)])
def test_an_input_that_does_not_say_what_it_is(chunkwise, inputs, place, message, help, stub):
    """The likeliest slip: no new stage is asked for, the declaration is."""
    text = text_of(inputs, ["S = exp(g) * S + outer(k, v)", "o = scale * (q @ S)"])
    Path("a.yaml").write_text(text)
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml", *stub)
    line = text[: text.index(f"  {place}")].count("\n") + 1
    first, where, *_ = err.strip().split("\n")
    assert code == 1
    assert first == f"error[CW805]: {message} is not declared as that: no stage takes it so"
    assert where.strip() == f"--> a.yaml:{line}:3"
    assert err.strip().endswith(f"help: declare it with {help}")
    assert not Path("fresh_stages").exists()


@pytest.mark.parametrize("declared", ["HV", '{shape: HV, where: ">= 0"}', '{shape: B T HV, where: "<= 1"}'])
@pytest.mark.parametrize("stub", [(), ("--stub",)])
def test_a_decay_that_is_no_factor(chunkwise, declared, stub):
    """No stub helps: a number below 0 has no logarithm, and one above 1 none that a stage takes."""
    text = text_of(f"  a: {declared}\n{STATE}", ["S = a * S + outer(k, v)", "o = scale * (q @ S)"])
    Path("a.yaml").write_text(text)
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml", *stub)
    assert code == 1 and not Path("fresh_stages").exists()
    assert (
        err.strip()
        == f"""\
error[CW805]: S decays by a, and the input a is not declared as a factor of 0 to 1: no stage takes it so
 --> a.yaml:8:3
  |
8 |   a: {declared}
  |   ^
help: declare it with where: 0..1"""
    )


MISSING = {
    "a decay that is a factor": (
        "  a: {shape: HV, where: 0..1}\n" + STATE, ["S = a * S + outer(k, v)", "o = scale * (q @ S)"],
        ["no stage gives log(a)", "a [HV] io -> g [HV] f32 log_decay/ln/slope <= 0"],
        ["fresh_decay"],
    ),
    "a matrix of each token": (
        "  M: B T HV K K\n" + STATE, ["S = M @ S + outer(k, v)", "o = scale * (q @ S)"],
        ["no stages carry the state S", "M [B T HV K K] io, k [B T H K] io, v [B T HV V] io"],
        ["fresh_S", "fresh_o"],
    ),
    "a decay that is no exponential": (
        "  a: B T HV K\n" + STATE, ["S = sigmoid(sum(a, axis=K)) * S + outer(k, v)", "o = scale * (q @ S)"],
        ["no stage gives log(sigmoid(sum(a, axis=K)))", "a [B T HV K] io -> g [B T HV] f32 log_decay/ln/token <= 0"],
        ["fresh_decay"],
    ),
    "a decay whose exponent no stage gives": (
        "  a: B T HV K\n" + STATE,
        ["S = diag(exp(-softplus(a - mean(a, axis=K)))) @ S + outer(k, v)", "o = scale * (q @ S)"],
        ["no stage gives -softplus(a - mean(a, axis=K))",
         "a [B T HV K] io -> g [B T HV K] f32 log_decay/ln/token <= 0"],
        ["fresh_decay"],
    ),
    "a slope of the model": (
        "  w: {shape: HV K, dtype: f32}\n" + STATE,
        ["S = exp(-exp(mean(w, axis=K))) * S + outer(k, v)", "o = scale * (q @ S)"],
        ["no stage gives -exp(mean(w, axis=K))", "w [HV K] f32 -> g [HV] f32 log_decay/ln/slope <= 0"],
        ["fresh_decay"],
    ),
    "a key with a name": (
        STATE, ["kn = k / norm(k, axis=K)", "S = S + outer(kn, v)", "o = scale * (q @ S)"],
        ["no stage gives k / norm(k, axis=K)", "k [B T H K] io -> y [B T H K] io"],
        ["fresh_kn"],
    ),
    "a strength with a number in front": (
        "  b: B T HV K\n" + STATE,
        ["beta = sigmoid(mean(b, axis=K))", "S = S + outer(k, 2 * beta * (v - k @ S))", "o = scale * (q @ S)"],
        ["no stage gives 2 * beta", "b [B T HV K] io -> y [B T HV] io"],
        ["fresh_2_beta"],
    ),
    "a correction at another vector": (
        "  p: B T H K\n" + G + BETA + STATE,
        ["S = exp(g) * S", "S = S + outer(k, beta * (v - p @ S))", "o = scale * (q @ S)"],
        ["no stages carry the state S", "takes off what the state holds at another vector than its key"],
        ["fresh_S", "fresh_o"],
    ),
    "a step that is not affine": (
        STATE, ["S = tanh(S + outer(k, v))", "o = scale * (q @ S)"],
        ["no stages carry the state S", "its step is not affine in it"],
        ["fresh_S", "fresh_o"],
    ),
    "a norm of what is read": (
        STATE, ["S = S + outer(k, v)", "r = q @ S", "o = r / norm(r, axis=V)"],
        ["no stage gives r / norm(r, axis=V)", "r [B T HV V] io -> y [B T HV V] io"],
        ["fresh_o"],
    ),
    "a condition": (
        G.replace("where", "optional: true, where") + STATE,
        ["o = q @ S", "S = exp(g) * S if g", "S = S + outer(k, v)"],
        ["no stages read the output o"],
        ["fresh_o"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSING)
def test_a_stub_runs_at_once(chunkwise, case):
    """What is missing is named, with the contract; the stub and the pipeline that uses it pass verify."""
    inputs, lines, words, names = MISSING[case]
    text = text_of(inputs, lines)
    Path("a.yaml").write_text(text)
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 1 and all(each in err for each in words), err
    code, out, err = chunkwise("new", "fresh", "--from", "a.yaml", "--stub", "own")
    assert code == 0, err
    assert sorted(path.stem for path in Path("own").glob("*.py")) == sorted(names)
    assert "next: chunkwise verify fresh.yaml --stages own" in out
    code, _, err = chunkwise("verify", "fresh.yaml", "--stages", "own", *SIZES, "--dtype", "fp64")
    assert code == 0, err


def test_a_square_state(chunkwise):
    """Both axes of the state have one name."""
    text = text_of("  M: B T HV V V\n", ["S = M @ S + outer(v, v)", "o = v @ S"], state='"zeros(V, V)"', final=None)
    Path("a.yaml").write_text(text.replace("  q: B T H K\n  k: B T H K\n", "").replace(PARAMS, ""))
    code, out, err = chunkwise("new", "fresh", "--from", "a.yaml", "--stub")
    assert code == 0, err
    assert sorted(path.stem for path in Path("fresh_stages").glob("*.py")) == ["fresh_S", "fresh_o"]


def test_two_states(chunkwise):
    """A normaliser beside the state: a stage for it, and one that reads the output from both."""
    lines = ["S = exp(g) * S + outer(k, v)", "z = exp(g) * z + k", "o = (q @ S) / maximum(abs(q @ z), 1)"]
    text = text_of(G, lines, state='"zeros(K, V)", z: zeros(K)', final=None)
    Path("a.yaml").write_text(text)
    code, out, err = chunkwise("new", "fresh", "--from", "a.yaml", "--stub")
    assert code == 0, err
    assert sorted(path.stem for path in Path("fresh_stages").glob("*.py")) == ["fresh_o", "fresh_z"]
    assert "h_S [B NT HV K V] io state/chunk_entry, h_z [B NT HV K] io state/chunk_entry -> o" in out


def test_a_state_whose_sizes_no_value_gives(chunkwise):
    """A count of tokens, which reads nothing: inputs of the file tell the stage how many tokens, heads and channels."""
    lines = ["S = S + outer(k, v)", "n = n + 1", "o = q @ S"]
    text = text_of("", lines, state='"zeros(K, V)", n: zeros(K)', final="{end: S, count: n}").replace(PARAMS, "")
    Path("a.yaml").write_text(text)
    code, out, err = chunkwise("new", "fresh", "--from", "a.yaml", "--stub")
    assert code == 0, err
    assert "q [B T H K] io, v [B T HV V] io -> h [B NT HV K] io state/chunk_entry" in out
    assert "verified in float64: 3 outputs and 3 gradients" in out
    assert '"v": Port("B T HV V", doc="for its sizes alone")' in Path("fresh_stages/fresh_n.py").read_text()


@pytest.mark.parametrize("inputs, lines, place, message, help", [
    (HEAD, ["S = S + outer(k, v)", "o = (q - q + k) @ S"], "5:3",
     "error[CW229]: no output depends on the input q, though a line reads it",
     "remove it, and what the lines make of it"),
    (HEAD.replace("  q: B T H K\n  k: B T H K\n", ""), ["S = S + outer(v, v)", "o = v"], "10:7",
     "error[CW805]: the output o is the input v as it came: there is nothing for a stage to do",
     "a definition gives what it computes"),
], ids=["an input", "an output"])  # fmt: skip
def test_what_has_no_effect(chunkwise, inputs, lines, place, message, help):
    text = text_of("", lines, state="'zeros(V, V)'", final=None).replace(HEAD, inputs).replace(PARAMS, "")
    Path("a.yaml").write_text(text.replace("V, V", "K, V") if inputs == HEAD else text)
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    first, where, *_ = err.strip().split("\n")
    assert (code, first, where.strip()) == (1, message, f"--> a.yaml:{place}")
    assert err.strip().endswith(f"help: {help}")


def reached_by_stages(text):
    spec = parse_recurrence(text, "a.yaml")
    readings = read_definition(spec)
    search = Search(tiny_case(spec, readings, given_outputs(readings.original)), shipped(), LEVELS[0])
    search.run()
    return Reached(search)


FEATURES = text_of(
    "  a: B T HV\n" + STATE,
    ["x = elu(k)", "kf = x + 1", "S = exp(-softplus(a) / 8) * S + outer(kf, v)", "o = scale * ((elu(q) + 1) @ S)"],
)


def test_values_as_expressions_over_the_inputs():
    """What a line has assigned is written out; a plain name is no expression."""
    reached = reached_by_stages(FEATURES)
    values = {each.text: as_edge_expression(each.node, reached) for each in reached.case.readings.values}
    assert values["x + 1"] == "elu(k) + 1"
    assert values["-softplus(a) / 8"] == "-softplus(a) / 8"
    assert values["kf"] is None


@pytest.mark.parametrize("lines", [4, 12])
def test_a_long_product_is_few_values(lines):
    """The whole, the whole but for its last factor, and factors: no more of twelve lines than of four."""
    products = ["a0 = silu(k) * q", *(f"a{at} = a{at - 1} * {'qk'[at % 2]}" for at in range(1, lines))]
    reached = reached_by_stages(text_of(STATE, [*products, f"S = S + outer(a{lines - 1}, v)", "o = scale * (q @ S)"]))
    texts = [value.name for value, _ in expression_leaves(reached, algebra(reached.case))]
    whole, but_one, silu = texts
    assert silu == "silu(k)" and whole.count("*") == lines and but_one.count("*") == lines - 1


def test_an_edge_takes_what_the_loader_takes():
    reached = reached_by_stages(FEATURES)
    assert edge_takes("q", reached)
    assert not edge_takes("elu(q) +", reached)


expressions_in_edges = pytest.mark.skipif(
    not edge_takes("elu(q) + 1", reached_by_stages(FEATURES)), reason="edges hold names alone"
)


@expressions_in_edges
def test_what_no_stage_gives_stands_in_an_edge():
    found = composed(FEATURES)
    assert isinstance(found, Composed)
    assert "k: elu(k) + 1" in found.text and "q: elu(q) + 1" in found.text and "x: -softplus(a) / 8" in found.text


@expressions_in_edges
def test_a_stage_reads_an_expression_and_another_stage_reads_that():
    """Gated delta with beta in 0..2 and elu + 1 keys: the norm is a stage, what it reads an expression."""
    lines = [
        "f = elu(k) + 1", "kn = f / sqrt(sum(f * f, axis=K) + 1e-6)",
        "S = exp(g) * S", "S = S + outer(kn, 2 * sigmoid(b) * (v - kn @ S))", "o = scale * (q @ S)",
    ]  # fmt: skip
    found = composed(text_of("  b: B T HV\n" + G + STATE, lines))
    assert isinstance(found, Composed)
    assert "{use: l2norm,               in: {x: elu(k) + 1}}" in found.text
    assert "beta: 2 * sigmoid(b)" in found.text


@expressions_in_edges
def test_a_gate_on_what_is_read_stands_in_the_outputs():
    lines = ["gate = silu(z)", "S = S + outer(k, v)", "o = gate * (scale * (q @ S))"]
    found = composed(text_of("  z: B T HV V\n" + STATE, lines))
    assert isinstance(found, Composed)
    assert "outputs: {o: (silu(z)) * chunk_o.o, final_state: chunk_h.final_state}" in found.text


STUB = '''\
"""k / norm(k, axis=K), as the definition of fresh has it.

Written by `chunkwise new --stub`: the reference is the definition. Kernels and a vjp may follow.
"""

import torch

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(
    inputs={
        "k": Port("B T H K"),
    },
    outputs={
        "y": Port("B T H K"),
    },
)


def reference(k):
    """k [B, T, H, K]."""
    return {"y": k / torch.linalg.vector_norm(k, dim=-1)[..., None]}
'''


def test_the_stage_that_is_written(chunkwise):
    Path("a.yaml").write_text(text_of(STATE, ["S = S + outer(k / norm(k, axis=K), v)", "o = scale * (q @ S)"]))
    assert chunkwise("new", "fresh", "--from", "a.yaml", "--stub")[0] == 0
    assert Path("fresh_stages/fresh_k_norm_k_axis_K.py").read_text() == STUB
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml", "--stub", "-o", "other.yaml")
    assert code == 2 and "fresh_k_norm_k_axis_K.py is there already" in err and not Path("other.yaml").exists()


@pytest.mark.parametrize("inputs, line, words", [
    (G, "S = -exp(g) * S + outer(k, v)",
     "g [B T HV] f32 log_decay/ln/token, k [B T H K] io, v [B T HV V] io -> "
     "h [B NT HV K V] io state/chunk_entry, final_state [N HV K V] f32 state/sequence_end"),
    ("  g: {shape: B T HV, where: 0..1}\n", "S = g * S + outer(k, v)",
     "g [B T HV] io -> g_2 [B T HV] f32 log_decay/ln/token <= 0"),
    ("  y: B T H K\n", "S = S + outer(k / norm(k, axis=K) + y, v)",
     "k [B T H K] io, y [B T H K] io -> y_2 [B T H K] io"),
    ("  h: B T H K\n", "S = tanh(S) + outer(k * h, v)",
     "k [B T H K] io, h [B T H K] io, v [B T HV V] io -> "
     "h_2 [B NT HV K V] io state/chunk_entry, final_state [N HV K V] f32 state/sequence_end"),
], ids=["no logarithm", "an input called g", "an input called y", "an input called h"])  # fmt: skip
def test_the_ports_of_a_stage_that_is_missing(inputs, line, words):
    spec = parse_recurrence(text_of(inputs, [line, "o = scale * (q @ S)"], "'zeros(K, V)'"), "a.yaml")
    found = compose(spec, shipped(), "found.yaml")
    assert stub_of(missing_stage(found), "fresh", shipped()).contract_words == words


CALLS = {
    "minimum": "minimum(x, w)", "maximum": "maximum(w, 0.5)", "clamp": "clamp(x, -0.5, w)",
    "where": "where(x > w, x, 2)", "outer": "outer(x, y)", "diag": "diag(x)", "transpose": "transpose(outer(x, y))",
    "ones": "x * ones(K)", "zeros": "x + zeros(K)",
}  # fmt: skip
EXPRESSIONS = [
    *(CALLS.get(name, f"{name}(abs(x), axis=K)" if function.rule in ("reduce", "along") else f"{name}(abs(x))")
      for name, function in FUNCTIONS.items()),
    "x @ outer(x, y)", "outer(x, y) @ y", "x @ x", "outer(x, y) @ outer(y, x)", "-w * x + w / 2 - x ** 2",
    "where((x > 0) & (w < 1), w, 1) * x", "w * outer(x, y) - 1", "1 - w", "exp(0.5) * x", "maximum(0.2, x)",
]  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_pytorch_that_is_written_is_the_definition(text):
    declared = {"x": ("B", "T", "HV", "K"), "y": ("B", "T", "HV", "V"), "w": ("B", "T", "HV")}
    sizes = {"B": 2, "T": 3, "HV": 2, "K": 4, "V": 5}
    generator = torch.Generator().manual_seed(0)
    given = {
        name: torch.randn([sizes[axis] for axis in axes], generator=generator, dtype=torch.float64)
        for name, axes in declared.items()
    }
    definition = parse_definition({"step": [Line(f"r = {text}")]})
    (right,) = evaluate(definition, given, declared=declared, outputs=["r"], axes=sizes).values()
    values = {name: Text(name, axes[3:]) for name, axes in declared.items()} | {"K": Text("K", None)}
    written = Writer(values).text(parse_expression(text))
    assert written.axes == typecheck(definition, declared, tuple(sizes)).values["r"]
    got = eval(written.code, {"torch": torch, "like": given["x"], **sizes, **given})
    assert torch.allclose(got.expand_as(right), right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("inputs, lines, words", [
    ("", ["S = S + outer(k, v)", "o = q @ S"],
     "S: no decay; a write does not read the state; read after it is written"),
    ("  w: {shape: HV, dtype: f32}\n", ["S = exp(w) * S + outer(k, v)", "o = q @ S"],
     "S: decay exp(w), one for each head, the same at every token; a write does not read the state; read after it is "
     "written"),
    (G_K + BETA, ["S = diag(exp(g)) @ S", "S = S - outer(beta * k, k @ S) + outer(k, v)", "o = q @ S"],
     "S: decay exp(g), one for each channel and token; a write takes off what the state holds at its key (delta rule); "
     "read after it is written"),
    (G, ["S = (diag(ones(K)) - outer(k, q)) @ (exp(g) * S)", "S = S + outer(k, v)", "o = q @ S"],
     "S: decay exp(g), one for each head and token; a write takes off what the state holds at another vector than its "
     "key; read after it is written"),
    ("", ["S = (diag(k) - outer(k, q) + outer(q, k)) @ S", "S = S + outer(k, v)", "o = q @ S"],
     "S: decay unknown; a step multiplies the state by a matrix that is no decay with a delta correction; read after "
     "it is written"),
    ("", ["o = q @ S", "S = S * S + outer(k, v)"],
     "S: its step is not affine in it, so that no chunk can be summed up before it is known"),
])  # fmt: skip
def test_what_a_recurrence_is(inputs, lines, words):
    spec = parse_recurrence(text_of(inputs + STATE, lines), "a.yaml")
    readings = read_definition(spec)
    (fact,) = algebra(tiny_case(spec, readings, given_outputs(readings.original)))
    assert fact.words == words
