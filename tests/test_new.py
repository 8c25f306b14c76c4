"""``chunkwise new``: every pipeline again from its definition alone, the same recurrences written otherwise, and stages
that nobody here has named."""

import json
from pathlib import Path

import pytest
import torch

from chunkwise.runner.composing.compose import Composed, NotComposed
from chunkwise.runner.composing.confirm import LIMIT, difference
from chunkwise.runner.loading.load_spec import read_spec
from chunkwise.runner.loading.pipelines import find_pipeline
from chunkwise.runner.loading.spec_text import spec_text
from chunkwise.runner.main import main
from chunkwise.runner.stage_files.stage_library import find_stages

from .support.ops import PIPELINES, STEPS
from .support.recurrences import BETA, G_K, SIZES, STATE, G, chunkwise, composed, here, text_of

__all__ = ["chunkwise", "here"]


def uses(found):
    assert isinstance(found, Composed), getattr(found, "refused", None)
    return [entry.use for entry in found.spec.stages.values()]


def definition_of(name):
    """The text of a pipeline up to its stages."""
    text = spec_text(read_spec(find_pipeline(name)))
    return text[: text.index("\nstages:") + 1]


@pytest.mark.parametrize("name", [*PIPELINES, *STEPS])
def test_every_pipeline_is_found_again_from_its_definition(name):
    text = definition_of(name)
    found = composed(text)
    own = read_spec(find_pipeline(name)).stages
    if name == "gla_serial":
        own = read_spec(find_pipeline("gla")).stages  # the same op, with gradients of its own
    assert sorted(uses(found)) == sorted(entry.use for entry in own.values())
    kept = found.text if "axes:" in text else found.text.replace("axes: {C: 64}\n", "", 1)
    assert kept.startswith(text.rstrip("\n"))
    slopes = [name for name in found.spec.inputs if name == "g_gamma"]
    assert list(found.without_gradient) == slopes
    outputs = ["o", "final_state"]
    gradients = [f"d_{name}" for name in found.spec.inputs if name not in slopes]
    assert sorted(found.confirmation.differences) == sorted(outputs + gradients)


DELTA = ["chunk_local_cumsum", "chunk_scaled_dot_kkt", "solve_tril", "recompute_w_u", "chunk_delta_h", "chunk_o"]
REWRITES = {
    "the correction multiplied out": (
        G + BETA, DELTA,
        ["S = exp(g) * (S - beta * outer(k, k @ S)) + beta * outer(k, v)", "o = scale * (q @ S)"],
    ),
    "named parts, scale on q": (
        G + BETA, DELTA,
        ["kb = beta * k", "D = exp(g) * S", "S = D - outer(kb, k @ D) + outer(k, v * beta)", "o = (q * scale) @ S"],
    ),
    "the read of the old state first": (
        G + BETA, DELTA,
        ["qs = q * scale", "a = exp(g)", "u = beta * v - beta * a * (k @ S)", "S = outer(k, u) + a * S", "o = qs @ S"],
    ),
    "a matrix in front of the state": (
        BETA, [each for each in DELTA if each != "chunk_local_cumsum"],
        ["S = (diag(ones(K)) - beta * outer(k, k)) @ S + outer(beta * k, v)", "o = scale * (q @ S)"],
    ),
    "a decay per channel, read before it": (
        G_K + BETA,
        ["chunk_local_cumsum_k", "kda_intra", "solve_tril", "recompute_w_u_k", "chunk_delta_h_k", "chunk_o_k"],
        ["a = exp(g)", "r = (a * k) @ S", "S = diag(a) @ S + outer(k, beta * (v - r))", "o = (scale * q) @ S"],
    ),
    "the read-out without the new state": (
        G, ["chunk_local_cumsum", "chunk_h", "chunk_o"],
        ["o = (q @ (exp(g) * S) + sum(q * k, axis=K) * v) * K ** -0.5", "S = exp(g) * S + outer(k, v)"],
    ),
    "a decay to base 2, scale divided": (
        G, ["chunk_local_cumsum", "chunk_h", "chunk_o"],
        ["S = exp2(g * 1.4426950408889634) * S + outer(k, v)", "o = (q @ S) / K"],
    ),
    "a norm as a power": (
        "", ["l2norm", "chunk_h", "chunk_o"],
        ["kn = k * (sum(k * k, axis=K) + 1e-6) ** -0.5", "S = S + outer(kn, v)", "o = scale * (q @ S)"],
    ),
    "a 1 in a feature, and none in front of what is read": (
        BETA, [*["elu(k) + 1"] * 4, *DELTA[1:]],
        ["S = S + outer(elu(k) + 1, beta * (v - (elu(k) + 1) @ S))", "o = q @ S"],
    ),
    "a sigmoid as a fraction": (
        "  b: B T HV\n", ["sigmoid", *DELTA[1:]],
        ["w = 1 / (1 + exp(-b))", "S = S + w * outer(k, v - k @ S)", "o = scale * (q @ S)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REWRITES)
def test_a_recurrence_written_otherwise_is_found_too(case):
    inputs, stages, lines = REWRITES[case]
    assert sorted(uses(composed(text_of(inputs + STATE, lines)))) == sorted(stages)


def test_a_transposed_state_is_found_too():
    inputs = G + BETA + STATE.replace("optional: true", "optional: true, default: 0")
    lines = ["S = exp(g) * S", "S = S + outer(beta * (v - S @ k), k)", "o = scale * (S @ q)"]
    text = text_of(inputs, lines, state="transpose(initial_state)", final=None)
    assert sorted(uses(composed(text))) == sorted(DELTA)


def test_the_same_file_every_time():
    text = definition_of("gated_delta")
    assert composed(text).text == composed(text).text


ELU = '''"""elu(x) + 1."""

import torch

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T H K")}, outputs={"y": Port("B T H K", where="> 0")})


def reference(x):
    return {"y": torch.nn.functional.elu(x) + 1}
'''


def test_a_stage_of_ones_own_takes_part_by_its_contract(here):
    (here / "own").mkdir()
    (here / "own" / "feature.py").write_text(ELU)
    lines = ["S = S + outer(elu(k) + 1, v)", "o = scale * ((elu(q) + 1) @ S)"]
    found = composed(text_of(STATE, lines), find_stages([here / "own"]))
    assert uses(found) == ["feature", "feature", "chunk_h", "chunk_o"]


ALMOST = '''"""The whole op, wrong from the tenth token on."""

import torch

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(
    inputs={"q": Port("B T H K"), "k": Port("B T H K"), "v": Port("B T HV V")},
    outputs={"o": Port("B T HV V")},
    params={"scale": None},
    requires=("HV % H == 0",),
)


def reference(q, k, v, *, C, scale):
    q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], 2) for x in (q, k))
    A = torch.einsum("bihk,bjhk->bhij", q, k).tril()
    A[..., 9:, :] = 0
    return {"o": scale * torch.einsum("bhij,bjhv->bihv", A, v)}
'''


def test_a_gradient_that_is_zero_is_held_against_numbers_around_one():
    """Of one that cancels there is only what float64 rounds off, and that is another in every order."""
    assert difference(torch.tensor([1e-17, 0.0]), torch.tensor([0.0, -1e-17])) <= 1e-10
    assert difference(torch.tensor([1e-9]), torch.tensor([0.0])) > LIMIT
    assert difference(torch.tensor([1.0]), torch.tensor([2.0])) == 0.5


def test_what_is_right_on_the_tiny_case_alone_is_refused(here):
    """A graph of one stage agrees on the 9 tokens of the tiny case."""
    (here / "own").mkdir()
    (here / "own" / "almost.py").write_text(ALMOST)
    text = text_of("", ["S = S + outer(k, v)", "o = scale * (q @ S)"], state='"zeros(K, V)"', final=None)
    only = {"almost": find_stages([here / "own"])["almost"]}
    refused = composed(text, only)
    assert isinstance(refused, NotComposed)
    assert all("o is off by" in why for why in refused.refused) and refused.refused


WHOLE = ALMOST.replace("    A[..., 9:, :] = 0\n", "").replace(", wrong from the tenth token on", "")


def test_stages_with_a_gradient_of_their_own_come_first(here):
    """One stage does it all, and its gradient would be autograd through its reference; without the others it serves."""
    (here / "own").mkdir()
    (here / "own" / "whole.py").write_text(WHOLE)
    text = text_of("", ["S = S + outer(k, v)", "o = scale * (q @ S)"], state='"zeros(K, V)"', final=None)
    stages = find_stages([here / "own"])
    assert uses(composed(text, stages)) == ["chunk_h", "chunk_o"]
    assert uses(composed(text, {"whole": stages["whole"]})) == ["whole"]


SIMPLE = text_of(G + STATE, ["S = exp(g) * S", "S = S + outer(k, v)", "o = scale * (q @ S)"])
WRITTEN = """\
# S: decay exp(g), one for each head and token; a write does not read the state; read after it is written
stages:
  # y: base-2 log decay summed from the chunk's first token to this one, inclusive
  chunk_local_cumsum: {use: chunk_local_cumsum, in: {x: g}}
  # h: S as it enters each chunk, rebuilt for backward
  # final_state: S after the last token, the output final_state
  chunk_h:            {use: chunk_h,            in: {k: k, v: v, g: chunk_local_cumsum.y, initial_state: \
initial_state}, recompute: true}
  # o: scale * (q @ S), the output o
  chunk_o:            {use: chunk_o,            in: {q: q, k: k, v: v, h: chunk_h.h, g: chunk_local_cumsum.y}, \
with: {scale: scale}}
outputs: {o: chunk_o.o, final_state: chunk_h.final_state}
"""


def test_the_file_that_is_written(chunkwise, here):
    """The words of the source stay as they are; the stages stand below, each with its reason."""
    (here / "a.yaml").write_text("# by hand\n" + SIMPLE)
    code, out, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert (code, err.strip()) == (0, "")
    assert out.startswith("wrote fresh.yaml: 3 stages (chunk_local_cumsum, chunk_h, chunk_o)\n")
    assert "verified in float64: 2 outputs and 5 gradients within" in out
    written = Path("fresh.yaml").read_text()
    assert written == "# by hand\n" + SIMPLE.replace("name: mine", "name: fresh") + WRITTEN
    assert chunkwise("check", "fresh.yaml")[0] == 0
    assert chunkwise("verify", "fresh.yaml", "--backward", *SIZES)[0] == 0


def test_an_expression_in_two_edges_is_one_stage(chunkwise, here):
    (here / "a.yaml").write_text(SIMPLE.replace("outer(k, v)", "outer(silu(k), v)"))
    code, out, _ = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 0 and out.startswith("wrote fresh.yaml: 4 stages (") and out.count("silu(k)") == 1
    assert "4 stages" in chunkwise("check", "fresh.yaml")[1]


def test_a_name_a_chunk_length_and_outputs_are_put_where_they_belong(chunkwise, here):
    bare = SIMPLE.replace("name: mine\n", "").replace("axes: {C: 64}\n", "") + "outputs: {o: nothing.yet}\n"
    (here / "a.yaml").write_text(bare)
    assert chunkwise("new", "fresh", "--from", "a.yaml", "-o", "b.yaml")[0] == 0
    written = Path("b.yaml").read_text()
    assert written.startswith("schema: pipeline/v1\nname: fresh\naxes: {C: 64}\ninputs:\n")
    assert written.endswith("\noutputs: {o: chunk_o.o}\n") and "nothing.yet" not in written


def test_keys_of_any_length_in_a_delta_rule(chunkwise, here):
    """It is written, and what may go wrong with it is told at the line of the input."""
    lines = ["S = S + outer(k, beta * (v - k @ S))", "o = scale * (q @ S)"]
    (here / "a.yaml").write_text(text_of(BETA, lines, "'zeros(K, V)'", final=None))
    code, out, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 0 and out.startswith("wrote fresh.yaml: 5 stages")
    first, place, *_, help = err.strip().split("\n")
    message = "nothing says that the keys k are at most 1 long: past sqrt(2 / beta) the delta rule diverges"
    assert (first, place.strip()) == (f"warning[CW244]: {message}", "--> fresh.yaml:6:3")
    assert help.startswith("help: make them so by the stage l2norm (in the definition k / sqrt(")


def test_a_file_that_is_there_is_kept(chunkwise, here):
    (here / "a.yaml").write_text(SIMPLE)
    (here / "fresh.yaml").write_text("mine")
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 2
    assert err.strip() == "error[CW601]: fresh.yaml is there already\nhelp: --force writes over it"
    assert Path("fresh.yaml").read_text() == "mine"
    assert chunkwise("new", "fresh", "--from", "a.yaml", "--force")[0] == 0


def test_one_document(capsys, here):
    (here / "a.yaml").write_text(SIMPLE)
    assert main(["new", "fresh", "--from", "a.yaml", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] and document["files"] == ["fresh.yaml"]
    assert list(document["stages"].values()) == ["chunk_local_cumsum", "chunk_h", "chunk_o"]


@pytest.mark.parametrize("argv, message", [
    (["for"], "error[CW601]: 'for' is not a name\nhelp: a letter, then letters, digits and _, at most 64; no word of "
     "Python, and not cu_seqlens"),
    (["fresh", "-o", "a.txt"], "error[CW601]: a.txt is no name of a pipeline file: it ends in .yaml"),
])  # fmt: skip
def test_names_that_will_not_do(chunkwise, here, argv, message):
    (here / "a.yaml").write_text(SIMPLE)
    code, _, err = chunkwise("new", *argv, "--from", "a.yaml")
    assert (code, err.strip()) == (2, message)


def test_a_file_with_stages_is_refused(chunkwise, here):
    (here / "a.yaml").write_text(SIMPLE + "stages: {out: {use: chunk_o}}\n")
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 2
    assert (
        err.strip()
        == """\
error[CW214]: the file has stages, and to find them from the definition is what was asked for
  --> a.yaml:18:1
   |
18 | stages: {out: {use: chunk_o}}
   | ^^^^^^
help: take stages and outputs out, or `chunkwise verify` the file as it is"""
    )


def test_a_dense_definition_is_refused(chunkwise, here):
    (here / "a.yaml").write_text("schema: pipeline/v1\ninputs: {q: B Sq HQ D}\ndefinition: {dense: [o = 2 * q]}\n")
    code, out, err = chunkwise("new", "b", "--from", "a.yaml")
    assert code == 2 and "a.yaml:3:22" in err
    assert "stages are found for a definition token by token (step)" in err


def test_an_input_that_the_definition_never_reads(chunkwise, here):
    (here / "a.yaml").write_text(SIMPLE.replace("inputs:\n", "inputs:\n  w: B T HV\n"))
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 2
    assert (
        err.strip()
        == """\
error[CW229]: the definition never reads the input w
 --> a.yaml:5:3
  |
5 |   w: B T HV
  |   ^
help: remove it"""
    )


@pytest.mark.parametrize("lines", [
    ["a = silu(k)", "S = exp(g) * S + outer(a, v)", "a = relu(q)", "o = a @ S", "o = scale * o"],
    ["k = silu(k)", "q = relu(q)", "S = exp(g) * S + outer(k, v)", "o = scale * (q @ S)"],
], ids=["a name again", "the name of an input"])  # fmt: skip
def test_a_name_that_stands_for_two_values(lines):
    """o is an output, though a line reads the o before it."""
    found = composed(text_of(G, lines, "'zeros(K, V)'", final=None))
    assert "{use: chunk_o,            in: {q: relu(q), k: silu(k), v: v," in found.text
    assert list(found.spec.outputs) == ["o"]


def test_lines_that_double_what_is_written_out():
    """2 ** 40 parts: too much for an edge, and told soon."""
    lines = ["a0 = silu(k)", *(f"a{at} = a{at - 1} * 1.5 + a{at - 1}" for at in range(1, 41))]
    lines += ["S = exp(g) * S + outer(a40, v)", "o = q @ S"]
    assert isinstance(composed(text_of(G, lines, "'zeros(K, V)'", final=None)), NotComposed)


@pytest.mark.parametrize("line, error", [
    ("", "the definition gives nothing: its lines make states alone\n --> a.yaml:9:1\n  |\n9 | definition:\n  | "
         "^^^^^^^^^^\nhelp: a line gives an output of each token (o = q @ S), final a state after the last one (final: "
         "{end: S})"),
    ("k = silu(k)", "k is an input, and an output too\n  --> a.yaml:13:7\n   |\n13 |     - k = silu(k)\n   |       "
                    "^^^^^^^^^^^\nhelp: give the line another name"),
], ids=["none", "an input"])  # fmt: skip
def test_outputs_that_a_definition_cannot_have(chunkwise, here, line, error):
    lines = ["S = S + outer(scale * q @ outer(q, k), v)", *([line] if line else [])]
    (here / "a.yaml").write_text(text_of("", lines, "'zeros(K, V)'", final=None))
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert (code, err.strip()) == (2, f"error[CW404]: {error}")


def test_a_state_that_no_line_writes(chunkwise, here):
    (here / "a.yaml").write_text(text_of(STATE, ["o = scale * ((q + k) @ S) + v"], final=None))
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 2
    assert (
        err.strip()
        == """\
error[CW404]: no line writes the state S
  --> a.yaml:11:14
   |
11 |   state: {S: initial_state}
   |              ^^^^^^^^^^^^^
help: a line of step gives the next state (S = S + outer(k, v)); what stays as it is is an input"""
    )


def test_a_fault_of_new_leaves_its_traceback_in_out(chunkwise, here, monkeypatch):
    (here / "a.yaml").write_text(SIMPLE)
    monkeypatch.setattr("chunkwise.runner.commands.new.compose", lambda *given: 1 / 0)
    code, out, err = chunkwise("new", "fresh", "--from", "a.yaml", "-o", "b.yaml")
    assert (code, out) == (4, "") and err.strip().endswith("please report it with out/traceback.txt")
    assert "ZeroDivisionError" in (here / "out" / "traceback.txt").read_text()


def test_a_definition_that_does_not_fit_is_an_error_at_its_place(chunkwise, here):
    (here / "a.yaml").write_text(SIMPLE.replace("q @ S", "S @ q"))
    code, _, err = chunkwise("new", "fresh", "--from", "a.yaml")
    assert code == 2 and "error[CW404]" in err and "a.yaml:16:" in err


def test_everything_is_in_float64_and_leaves_the_threads_alone():
    before = torch.get_num_threads()
    composed(SIMPLE)
    assert torch.get_num_threads() == before
