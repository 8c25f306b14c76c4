"""What a Python call that does not fit is told: the exact text of the exception, before anything runs."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from support.ops import op as shipped
from support.ops import refusal

from chunkwise.runner import load
from chunkwise.runner.diagnostics.errors import ChunkwiseError

OP = """\
schema: pipeline/v1
name: op
axes: {C: 64}
inputs:
  q:    B T H K
  k:    B T H K
  v:    B T HV V
  g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  beta: B T HV
  S0:   {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
params: {scale: K ** -0.5}
stages:
  c:     {use: chunk_local_cumsum,   in: {x: g}}
  kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: c.y}}
  solve: {use: solve_tril,           in: {A: kkt.A}}
  wy:    {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: c.y}}
  scan:  {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: c.y, initial_state: S0}}
  out:   {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: c.y}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""


@pytest.fixture
def op(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "op.yaml").write_text(OP)
    return load("op.yaml")


def tensors(B=1, T=8, H=2, HV=4, K=16, V=24, **others):
    shapes = {"q": (B, T, H, K), "k": (B, T, H, K), "v": (B, T, HV, V), "g": (B, T, HV), "beta": (B, T, HV)}
    made = {name: torch.zeros(shape) for name, shape in shapes.items()} | others
    return {name: x for name, x in made.items() if x is not ABSENT}


def ends(*values, **how):
    return torch.tensor(values, **how)


ABSENT = object()
HALF = torch.bfloat16
TENSOR = "help: lengths 3, 5 are torch.tensor([0, 3, 8]); an op takes them as a list too, as seqlens=[3, 5]"
STARTS = "help: cu_seqlens holds 0 and then the end of each sequence: lengths 3, 5 are [0, 3, 8]"


def said(op, **call):
    with pytest.raises(ChunkwiseError) as caught:
        op(**tensors(**call))
    return str(caught.value)


TENSORS = {
    "missing": (
        dict(beta=ABSENT),
        """\
error[CW604]: the input beta [B T HV] is missing
 --> op.yaml:9:3
  |
9 |   beta: B T HV
  |   ^^^^""",
    ),
    "None for a required one, and one more": (
        dict(beta=None, q=None),
        """\
error[CW604]: the input q [B T H K] is missing
 --> op.yaml:5:3
  |
5 |   q:    B T H K
  |   ^

error[CW604]: the input beta [B T HV] is missing
 --> op.yaml:9:3
  |
9 |   beta: B T HV
  |   ^^^^""",
    ),
    "a slip of the pen is one error": (
        dict(beta=ABSENT, betta=torch.zeros(1)),
        "error[CW604]: op takes no betta\nhelp: did you mean beta?",
    ),
    "an unknown name": (
        dict(temperature=1.0),
        """\
error[CW604]: op takes no temperature
help: it takes q, k, v, g, beta, S0, scale, cu_seqlens, seqlens, outputs""",
    ),
    "no tensor": (
        dict(q=[1, 2]),
        """\
error[CW604]: q [B T H K] must be a tensor, it is list
 --> op.yaml:5:3
  |
5 |   q:    B T H K
  |   ^""",
    ),
    "rank": (
        dict(q=torch.zeros(1, 8, 32)),
        """\
error[CW604]: q [B T H K] must have 4 axes, it has the shape [1, 8, 32]
 --> op.yaml:5:3
  |
5 |   q:    B T H K
  |   ^""",
    ),
    "dtype of a float32 port": (
        dict(g=torch.zeros(1, 8, 4, dtype=HALF)),
        """\
error[CW604]: g [B T HV] must be fp32, it is bf16
 --> op.yaml:8:3
  |
8 |   g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  |   ^
help: pass g.to(torch.float32)""",
    ),
    "mixed dtypes": (
        dict(v=torch.zeros(1, 8, 4, 24, dtype=HALF)),
        """\
error[CW604]: the inputs of op must share one dtype: q is fp32, k is fp32, v is bf16, beta is fp32
help: cast them to one of bf16, fp16, fp32, fp64""",
    ),
    "a dtype that nothing takes": (
        {name: x.long() for name, x in tensors().items() if name != "g"},
        """\
error[CW604]: q [B T H K] is int64; dtypes are bf16, fp16, fp32, fp64
 --> op.yaml:5:3
  |
5 |   q:    B T H K
  |   ^""",
    ),
    "axes on which tensors disagree": (
        dict(k=torch.zeros(1, 8, 2, 32), v=torch.zeros(1, 9, 4, 24)),
        """\
error[CW604]: k [B T H K] has K = 32, q has 16
 --> op.yaml:6:3
  |
6 |   k:    B T H K
  |   ^

error[CW604]: v [B T HV V] has T = 9, q has 8
 --> op.yaml:7:3
  |
7 |   v:    B T HV V
  |   ^""",
    ),
    "transposed state": (
        dict(S0=torch.zeros(1, 4, 24, 16)),
        """\
error[CW604]: S0 [N HV K V] has K = 24, q has 16
  --> op.yaml:10:3
   |
10 |   S0:   {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
   |   ^^

error[CW604]: S0 [N HV K V] has V = 16, v has 24
  --> op.yaml:10:3
   |
10 |   S0:   {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
   |   ^^""",
    ),
    "states for other sequences": (
        dict(S0=torch.zeros(3, 4, 16, 24)),
        """\
error[CW604]: S0 [N HV K V] has 3 states, and the number of sequences is 1
  --> op.yaml:10:3
   |
10 |   S0:   {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
   |   ^^""",
    ),
    "states for packed sequences": (
        dict(S0=torch.zeros(1, 4, 16, 24), seqlens=[3, 5]),
        """\
error[CW604]: S0 [N HV K V] has 1 states, and the number of sequences is 2
  --> op.yaml:10:3
   |
10 |   S0:   {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
   |   ^^""",
    ),
    "value heads that key heads do not divide": (
        dict(HV=3),
        """\
error[CW306]: HV % H == 0 does not hold for H = 2, HV = 3, and kkt (chunk_scaled_dot_kkt) requires it
  --> op.yaml:14:3
   |
14 |   kkt:   {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: c.y}}
   |   ^^^
note: H = 2 through kkt.k from k
note: HV = 3 through kkt.beta from beta
note: wy (recompute_w_u) requires it too
note: scan (chunk_delta_h) requires it too
note: out (chunk_o) requires it too""",
    ),
    "another device": (
        dict(g=torch.zeros(1, 8, 4, device="meta")),
        """\
error[CW604]: g [B T HV] is on meta, q is on cpu
 --> op.yaml:8:3
  |
8 |   g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0"}
  |   ^""",
    ),
    "a param that is no number": (
        dict(scale="1"),
        """\
error[CW604]: the param scale must be a number, it is str
  --> op.yaml:11:10
   |
11 | params: {scale: K ** -0.5}
   |          ^^^^^""",
    ),
    "a param beyond float64": (
        dict(scale=10**400),
        """\
error[CW604]: the param scale must be finite in float64, it is an integer of 1329 bits
  --> op.yaml:11:10
   |
11 | params: {scale: K ** -0.5}
   |          ^^^^^""",
    ),
    "a param of nan": (
        dict(scale=float("nan")),
        """\
error[CW604]: the param scale must be finite in float64, it is nan
  --> op.yaml:11:10
   |
11 | params: {scale: K ** -0.5}
   |          ^^^^^""",
    ),
    "a sparse tensor": (
        dict(q=torch.zeros(1, 8, 2, 16).to_sparse()),
        """\
error[CW604]: q [B T H K] must be a dense tensor, it is sparse_coo
 --> op.yaml:5:3
  |
5 |   q:    B T H K
  |   ^
help: sequences of several lengths are packed along T, with their lengths in seqlens""",
    ),
    "a list in outputs": (
        dict(outputs=[["o"]]),
        "error[CW604]: op has no output ['o']\nhelp: it has o, final_state",
    ),
    "an unknown output": (dict(outputs=["oo"]), "error[CW604]: op has no output oo\nhelp: did you mean o?"),
    "outputs as a text": (
        dict(outputs="o"),
        "error[CW604]: outputs must be a list of names, it is a text\nhelp: write outputs=['o']",
    ),
}


@pytest.mark.parametrize("call, expected", TENSORS.values(), ids=TENSORS)
def test_tensors(op, call, expected):
    assert said(op, **call) == expected


SEQUENCES = {
    "not starting at 0": (
        dict(cu_seqlens=ends(1, 8)),
        f"error[CW603]: cu_seqlens must start at 0, it starts at 1\n{STARTS}",
    ),
    "decreasing": (
        dict(T=128, cu_seqlens=ends(0, 12, 8, 16)),
        f"error[CW603]: cu_seqlens must not decrease: sequence 1 would go from 12 to 8\n{STARTS}",
    ),
    "decreasing, in int32": (
        dict(T=128, cu_seqlens=ends(0, 12, 8, 16, dtype=torch.int32)),
        f"error[CW603]: cu_seqlens must not decrease: sequence 1 would go from 12 to 8\n{STARTS}",
    ),
    "past the end": (
        dict(cu_seqlens=ends(0, 4, 9)),
        "error[CW603]: the sequences have 9 tokens in all, the tensors have T = 8",
    ),
    "wrong dtype": (
        dict(cu_seqlens=ends(0.0, 8.0)),
        "error[CW603]: cu_seqlens must be int32 or int64, it is float32\nhelp: pass cu_seqlens.to(torch.int32)",
    ),
    "on another device": (
        dict(cu_seqlens=ends(0, 8, device="meta")),
        "error[CW603]: cu_seqlens is on meta, the tensors are on cpu\nhelp: pass cu_seqlens.to('cpu')",
    ),
    "more than one batch row": (
        dict(B=2, cu_seqlens=ends(0, 8)),
        "error[CW603]: packed sequences need B = 1, here B = 2\nhelp: concatenate the sequences along T",
    ),
    "a list": (
        dict(cu_seqlens=[0, 8]),
        f"error[CW603]: cu_seqlens must be a tensor [N + 1], it is no tensor\n{TENSOR}",
    ),
    "two axes": (
        dict(cu_seqlens=ends([0, 8])),
        f"error[CW603]: cu_seqlens must be a tensor [N + 1], it has the shape [1, 2]\n{TENSOR}",
    ),
    "no sequence": (
        dict(cu_seqlens=ends(0)),
        f"error[CW603]: there is no sequence: cu_seqlens has fewer than 2 entries\n{STARTS}",
    ),
    "a negative length": (dict(seqlens=[3, -1]), "error[CW603]: seqlens gives sequence 1 the length -1"),
    "lengths that are not whole": (
        dict(seqlens=[3.5]),
        "error[CW603]: seqlens must be whole numbers, it is [3.5]\nhelp: pass the lengths, as in seqlens=[100, 0, 28]",
    ),
    "true for a length": (
        dict(seqlens=[True, 5]),
        "error[CW603]: seqlens must be whole numbers, it is [True, 5]\n"
        "help: pass the lengths, as in seqlens=[100, 0, 28]",
    ),
    "no length": (dict(seqlens=()), "error[CW603]: there is no sequence: seqlens is empty"),
    "sparse ends": (
        dict(cu_seqlens=ends(0, 8).to_sparse()),
        "error[CW603]: cu_seqlens must be a dense tensor, it is sparse_coo",
    ),
    "lengths past the end": (
        dict(seqlens=[3, 6]),
        "error[CW603]: the sequences have 9 tokens in all, the tensors have T = 8",
    ),
    "two counts": (
        dict(seqlens=[3, 5], cu_seqlens=ends(0, 8)),
        "error[CW603]: cu_seqlens has 1 sequences, the lengths on the host have 2",
    ),
    "a set": (
        dict(seqlens={5, 3}),
        "error[CW603]: seqlens must be whole numbers in the order of the sequences, it is a set\n"
        "help: pass the lengths, as in seqlens=[100, 0, 28]",
    ),
    "a mapping": (
        dict(seqlens={3: "a", 5: "b"}),
        "error[CW603]: seqlens must be whole numbers in the order of the sequences, it is a dict\n"
        "help: pass the lengths, as in seqlens=[100, 0, 28]",
    ),
    "bytes": (
        dict(seqlens=b"\x03\x05"),
        "error[CW603]: seqlens must be whole numbers in the order of the sequences, it is a bytes\n"
        "help: pass the lengths, as in seqlens=[100, 0, 28]",
    ),
    "two opinions": (
        dict(seqlens=[3, 5], cu_seqlens=ends(0, 4, 8)),
        "error[CW603]: cu_seqlens is [0, 4, 8], and the lengths on the host make it [0, 3, 8]",
    ),
}


@pytest.mark.parametrize("call, expected", SEQUENCES.values(), ids=SEQUENCES)
def test_packed_sequences(op, call, expected):
    assert said(op, **call) == expected


def test_sequences_that_fit(op):
    state = torch.zeros(3, 4, 16, 24)
    for how in (dict(seqlens=(3, 0, 4)), dict(cu_seqlens=ends(0, 3, 3, 7)), dict(seqlens=torch.tensor([3, 0, 4]))):
        assert op(**tensors(S0=state, **how)).final_state.shape == state.shape
    both = dict(seqlens=[3, 5], cu_seqlens=ends(0, 3, 8, dtype=torch.int32))
    assert op(**tensors(**both)).final_state.shape == (2, 4, 16, 24)


ROWS = {
    "a count below 0": (
        "flash",
        dict(lengths=ends(5, -1)),
        "lengths [B] has -1 at [1], and its law is row_count(Sk)",
        "each is a number of rows of Sk, not below 0",
    ),
    "ends that decrease": (
        "flash_varlen",
        dict(q_ends=ends(4, 2), k_ends=ends(4, 5)),
        "q_ends [ND] has 2 at [1], and its law is row_ends(Sq)",
        "each is a row of Sq where a sequence ends, and none lies before the one that it follows",
    ),
    "a first end below 0": (
        "flash_varlen",
        dict(q_ends=ends(3, 4), k_ends=ends(-3, 5)),
        "k_ends [ND] has -3 at [0], and its law is row_ends(Sk)",
        "each is a row of Sk where a sequence ends, and none lies before the one that it follows",
    ),
}


@pytest.mark.parametrize("name, rows, message, help", ROWS.values(), ids=ROWS)
def test_counts_of_rows_on_the_host_keep_their_laws(name, rows, message, help):
    (error,) = refusal(shipped(name), q=torch.ones(2, 4, 2, 8), **{kv: torch.ones(2, 5, 2, 8) for kv in "kv"}, **rows)
    assert (error.code, error.message, error.help) == ("CW604", message, help)


def test_sequences_of_a_pipeline_without_tokens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rest = "stages: {n: {use: l2norm, in: {x: x}}}\noutputs: {y: n.y}\n"
    text = "schema: pipeline/v1\nname: one\ninputs: {x: 1 2 3 K}\n" + rest
    (tmp_path / "one.yaml").write_text(text)
    with pytest.raises(ChunkwiseError) as caught:
        load("one.yaml")(x=torch.zeros(1, 2, 3, 4), seqlens=[2])
    assert str(caught.value) == (
        "error[CW603]: this pipeline has no axes B and T along which sequences could be packed"
    )
    with pytest.raises(ChunkwiseError) as caught:
        load("one.yaml")(x=torch.zeros(1, 2, 4, 4))
    assert str(caught.value).startswith("error[CW604]: x [1 2 3 K] has the size 4, the file says 3\n")


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(op, layout):
    nested = torch.nested.nested_tensor([torch.zeros(8, 2, 16), torch.zeros(4, 2, 16)], layout=layout)
    assert said(op, q=nested).startswith("error[CW604]: q [B T H K] must be a dense tensor, it is nested\n")


@pytest.mark.parametrize("scale", [np.float32(0.5), np.float64(0.5), Fraction(1, 2), np.int64(2), 2**70], ids=repr)
def test_params_are_real_numbers_of_any_type(op, scale):
    given = tensors(q=torch.ones(1, 8, 2, 16), k=torch.ones(1, 8, 2, 16), v=torch.ones(1, 8, 4, 24))
    assert torch.equal(op(**given, scale=scale).o, op(**given, scale=float(scale)).o)


def test_no_memory_on_the_cpu(op):
    """More than any machine can address, so that it is refused at once."""
    message = said(op.with_axes({"C": 999_999_999}).with_mode("chunk"), T=64, H=1, HV=64)
    assert message.startswith(
        "error[CW703]: there is no memory for kkt (chunk_scaled_dot_kkt), whose buffers are [1, 64, 64, 999999999]\n"
    )


def test_every_output_is_a_tensor_of_its_own(tmp_path):
    """Two outputs of one source, and an output that is an input: writing one changes no other."""
    stages = "stages: {n: {use: sigmoid, in: {x: x}}}\noutputs: {y: n.y, z: n.y, w: x}\n"
    (tmp_path / "op.yaml").write_text("schema: pipeline/v1\nname: op\ninputs: {x: B T HV}\n" + stages)
    op = load(tmp_path / "op.yaml")
    for call in (op, torch.compile(lambda **given: op(**given), backend="aot_eager", fullgraph=True)):
        for trained in (False, True):
            x = torch.ones(1, 8, 2, requires_grad=trained)
            out = call(x=x)
            y = out.y.detach().clone()
            assert len({each.data_ptr() for each in (*out, x)}) == 4
            assert torch.equal(out.z, y) and torch.equal(out.w, x)
            if trained:
                sum(each.sum() for each in out).backward()
                torch.testing.assert_close(x.grad, 2 * y * (1 - y) + 1)


BACKENDS = {
    "triton": """\
error[CW701]: the triton back end needs a GPU, the tensors are on cpu
help: use backend reference, or interpret (Triton kernels on the CPU, in float32)""",
    "cuda": "error[CW601]: there is no back end cuda\nhelp: back ends are auto, triton, reference, interpret",
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_back_ends(op, backend):
    with pytest.raises(ChunkwiseError) as caught:
        load("op.yaml", backend=backend)(**tensors())
    assert str(caught.value) == BACKENDS[backend]


def test_no_gradient_of_a_gradient(op):
    q = torch.zeros(1, 8, 2, 16, requires_grad=True)
    o = op(**tensors(q=q)).o
    with pytest.raises(ChunkwiseError) as caught:
        torch.autograd.grad(o.sum(), q, create_graph=True)
    assert str(caught.value) == (
        "error[CW609]: op was asked for the gradient of its gradient, which is not derived\n"
        "help: call backward without create_graph"
    )


def test_names_of_pipelines_and_folders(op):
    errors = []
    far = "x" * 5000
    for name, more in [
        ("gated_dleta", {}), ("gla_chunk_scan", {}), ("x/gla_chunk_scan", {}), ("", {}), ("op.yml", {}),
        ("op.yaml", dict(stages=["/nowhere"])),
        (f"{far}.yaml", {}), ("op.yaml", dict(stages=[far])),
    ]:  # fmt: skip
        with pytest.raises(ChunkwiseError) as caught:
            load(name, **more)
        errors.append(str(caught.value).replace("\n", " ").split(" help: pipelines here are")[0])
    assert errors == [
        "error[CW101]: there is no pipeline gated_dleta help: did you mean gated_delta?",
        "error[CW101]: there is no pipeline gla_chunk_scan help: gla_chunk_scan is a stage, of gla_serial",
        "error[CW101]: there is no pipeline x/gla_chunk_scan",
        "error[CW601]: the name of the pipeline is empty help: load(\"gated_delta\")",
        "error[CW101]: there is no pipeline op.yml",
        "error[CW505]: no such folder of stages: /nowhere",
        f"error[CW101]: {'x' * 80} cannot be looked for: File name too long",
        f"error[CW505]: no such folder of stages: {'x' * 80}",
    ]


def test_a_param_without_a_value_for_these_sizes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "op.yaml").write_text(OP.replace("scale: K ** -0.5", "scale: 1 / (K - 16)"))
    with pytest.raises(ChunkwiseError) as caught:
        load("op.yaml")(**tensors())
    assert (
        str(caught.value)
        == """\
error[CW405]: the param scale: division by zero in 1 / (K - 16), for K = 16
  --> op.yaml:11:17
   |
11 | params: {scale: 1 / (K - 16)}
   |                 ^^^^^^^^^^^^"""
    )


def test_a_stage_parameter_without_a_value_for_these_sizes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "op.yaml").write_text(OP.replace("with: {scale: scale}", "with: {scale: scale / (T - 8)}"))
    with pytest.raises(ChunkwiseError) as caught:
        load("op.yaml")(**tensors())
    assert str(caught.value).startswith(
        "error[CW405]: out.scale: division by zero in scale / (T - 8), for T = 8, scale = 0.25\n  --> op.yaml:18:3\n"
    )
