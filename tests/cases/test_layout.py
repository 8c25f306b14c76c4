"""Layout, dtype and flags: the L cases, D2, B3."""

import math

import pytest
import torch
from support.ops import OPS, check, close, inputs, op, refusal, same_bits

from chunkwise.runner import load
from chunkwise.runner.diagnostics import codes

B3 = """
schema: pipeline/v1
name: optional_gate
axes: {C: 64}
inputs:
  q:    B T H K
  k:    {shape: B T H K, where: unit_norm(K)}
  v:    B T HV V
  g:    {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0", optional: true, default: 0}
  beta: {shape: B T HV, where: 0..1}
  initial_state: {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
params: {scale: K ** -0.5}
definition:
  state: {S: initial_state}
  step:
    - S = exp(g) * S
    - S = S + outer(k, beta * (v - k @ S))
    - o = scale * (q @ S)
  final: {final_state: S}
stages:
  cumsum: {use: chunk_local_cumsum,   in: {x: g}}
  kkt:    {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: cumsum.y}}
  solve:  {use: solve_tril,           in: {A: kkt.A}}
  wy:     {use: recompute_w_u,        in: {k: k, v: v, beta: beta, Ai: solve.Ai, g: cumsum.y}}
  scan:   {use: chunk_delta_h,        in: {k: k, w: wy.w, u: wy.u, g: cumsum.y, initial_state: initial_state}}
  out:    {use: chunk_o,              in: {q: q, k: k, v: scan.v_new, h: scan.h, g: cumsum.y}, with: {scale: scale}}
outputs: {o: out.o, final_state: scan.final_state}
"""


def strided(x, how):
    """The same numbers in memory that is not contiguous."""
    if how == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "sliced":
        room = x.new_full([2 * n for n in x.shape], math.nan)
        room[tuple(slice(n // 2, n // 2 + n) for n in x.shape)] = x
        return room[tuple(slice(n // 2, n // 2 + n) for n in x.shape)]
    return x[:1].contiguous().expand_as(x) if x.dim() > 1 else x[:1].expand_as(x)


@pytest.mark.parametrize("how", ["transposed", "sliced", "expanded"])
@pytest.mark.parametrize("name", OPS)
def test_l6_views(name, how):
    """Transposed, sliced and expanded inputs give the bits that contiguous ones give."""
    an_op = op(name)
    views = {n: strided(x, how) for n, x in inputs(an_op, torch.bfloat16).items()}
    assert any(not x.is_contiguous() for x in views.values())
    plain = {n: x.clone(memory_format=torch.contiguous_format) for n, x in views.items()}
    for found, expected in zip(an_op(**views), an_op(**plain)):
        assert same_bits(found, expected)


@pytest.mark.parametrize("name", OPS)
def test_l6_an_expanded_output_gradient(name):
    """The gradient of a sum has stride 0."""
    an_op = op(name)
    gradients = []
    for d_o in (torch.ones(()).bfloat16().expand(2, 70, 4, 80), torch.ones(2, 70, 4, 80).bfloat16()):
        given = {n: x.requires_grad_() for n, x in inputs(an_op, torch.bfloat16).items()}
        an_op(**given).o.backward(d_o)
        gradients.append([x.grad for x in given.values()])
    assert all(same_bits(a, b) for a, b in zip(*gradients))


@pytest.mark.parametrize("seqlens", [None, (33, 0, 37)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", OPS)
def test_l12_inputs_stay_as_they_are(name, seqlens):
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16, seqlens=seqlens)
    cu_seqlens = None if seqlens is None else torch.tensor([0, *seqlens]).cumsum(0)
    before = {n: x.clone() for n, x in given.items()}
    ends = None if cu_seqlens is None else cu_seqlens.clone()
    an_op(**given, cu_seqlens=cu_seqlens)
    assert all(same_bits(before[n], x) for n, x in given.items())
    assert cu_seqlens is None or torch.equal(cu_seqlens, ends)


@pytest.mark.parametrize("name", OPS)
def test_l12_nothing_stored_that_was_not_asked_for(name):
    an_op = op(name)
    given = inputs(an_op)
    assert an_op(**given, outputs=["o"]).final_state is None
    stored = [step.outputs for step in an_op.bind(given, outputs=["o"]).forward_plan().steps]
    assert all(each.get("final_state") is None for each in stored)
    alone = an_op.bind(given, outputs=["final_state"]).forward_plan()
    assert "out" not in [step.node.id for step in alone.steps]
    assert all(step.outputs.get("h") is None for step in alone.steps)


@pytest.mark.parametrize("name", OPS)
def test_l13_every_optional_input_has_its_effect(name):
    an_op = op(name)
    given = inputs(an_op)
    everything = an_op(**given)
    optional = [each.name for each in an_op.spec.inputs.values() if each.optional]
    assert optional
    for each in optional:
        assert not torch.equal(an_op(**{**given, each: None}).o, everything.o), each


@pytest.mark.parametrize("name", OPS)
def test_l13_every_param_has_its_effect(name):
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16)
    for param in an_op.spec.params:
        check(an_op, given, params={param: 0.5})
        assert not torch.equal(an_op(**given, **{param: 0.5}).o, an_op(**given).o), param


def test_l13_what_is_not_known_is_refused():
    an_op = op("gated_delta")
    given = inputs(an_op, B=1)
    for wrong in (dict(head_first=True), dict(initial_states=given["initial_state"]), dict(outputs=["state"])):
        assert {each.code for each in refusal(an_op, **given, **wrong)} == {codes.TENSOR}
    assert refusal(an_op.with_axes, {"BT": 32})[0].code == codes.BAD_AXES
    assert refusal(load, "gated_delta", backend="cuda")[0].code == codes.USAGE


@pytest.mark.parametrize("name", OPS)
def test_l5_no_transposed_state_passes(name):
    an_op = op(name)
    given = inputs(an_op)
    given["initial_state"] = given["initial_state"].transpose(-1, -2)
    found = refusal(an_op, **given)
    assert {each.code for each in found} == {codes.TENSOR}
    assert [each.message.split(",")[0] for each in found] == [
        "initial_state [N HV K V] has K = 80", "initial_state [N HV K V] has V = 48"
    ]  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_d2_mixed_dtypes_are_refused_by_name(name):
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16)
    (found,) = refusal(an_op, **{**given, "v": given["v"].float()})
    assert found.code == codes.TENSOR and "v is fp32" in found.message and "q is bf16" in found.message
    (found,) = refusal(an_op, **{**given, "initial_state": given["initial_state"].bfloat16()})
    assert found.code == codes.TENSOR and "initial_state" in found.message and "fp32" in found.message
    for dtype in (torch.float8_e4m3fn, torch.int32, torch.complex64):
        found = refusal(an_op, **{n: x.to(dtype) if x.dtype == torch.bfloat16 else x for n, x in given.items()})
        assert {each.code for each in found} == {codes.TENSOR}


def test_b3_an_optional_gate(tmp_path):
    """Absent, the Gram matrix and its inverse are the ungated ones; the answer is that of gates of 0."""
    path = tmp_path / "optional_gate.yaml"
    path.write_text(B3.lstrip())
    an_op = load(path, backend="reference")
    given = inputs(an_op, torch.bfloat16)
    check(an_op, given)
    without = {**given, "g": None}
    check(an_op, without, backward=True)
    zero = {**given, "g": torch.zeros_like(given["g"])}
    close(an_op, zero, an_op(**without).o, an_op(**zero), "o")
    tracked = {n: None if x is None else x.requires_grad_() for n, x in without.items()}
    an_op(**tracked).o.sum().backward()
    assert all(x is None or x.grad is not None for x in tracked.values())
