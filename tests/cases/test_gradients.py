"""Hard inputs again, for the gradients.

In float64, by autograd through the op against autograd through its definition: both say the same number, to a relative
1e-9 of the whole tensor. In the other dtypes against the derived budgets, stage by stage.
"""

import pytest
import torch
from support.ops import GATED, OPS, PIPELINES, check, inputs, op, same_bits

from chunkwise.runner import load
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.verification.oracle import definition_gradients

SMALL = dict(B=1, T=130, H=1, HV=2, K=24, V=16)
LEAK = 1e-36
"""What passes a gate below the clamp at 2^-126, beside numbers of size 1."""


def able(an_op, given):
    """The inputs that gradients can be asked for."""
    absent = frozenset(name for name, x in given.items() if x is None)
    return [name for name, x in given.items() if x is not None and an_op.has_gradient(name, absent)]


def cotangents_of(an_op, given, outputs=None, seqlens=None):
    """Noise for the outputs that are named, for all by default."""
    out = an_op(**given, seqlens=seqlens)._asdict()
    generator = torch.Generator().manual_seed(1)
    noise = {name: torch.randn(x.shape, generator=generator).to(x.dtype) for name, x in out.items() if x is not None}
    return {name: noise[name] for name in outputs or noise}


def ours(an_op, given, cotangents, function=None, **keywords):
    """Gradients by autograd through the op, or through another function of its inputs."""
    names = able(an_op, given)
    leaves = {name: x.clone().requires_grad_() if name in names else x for name, x in given.items()}
    out = (function or an_op)(**leaves, **keywords)
    torch.autograd.backward([getattr(out, name) for name in cotangents], list(cotangents.values()))
    return {name: leaves[name].grad for name in names}


def exact(an_op, given, outputs=None, seqlens=None, params=None):
    """The op's gradients equal the definition's; inputs in float64. An input without any has the gradient 0 there."""
    params = params or {}
    cotangents = cotangents_of(an_op, given, outputs, seqlens)
    call = an_op.bind({**given, **params}, None, seqlens, list(cotangents))
    joint = call.joint(able(an_op, given), an_op.whole.outputs)
    truth = definition_gradients(joint, given, cotangents, call.params, call.sizes, call.packing)
    found = ours(an_op, given, cotangents, seqlens=seqlens, **params)
    assert truth.keys() == found.keys()
    for name, x in truth.items():
        assert found[name] is not None or not x.any(), name
        error = x if found[name] is None else found[name] - x
        assert error.isfinite().all(), name
        assert error.norm() <= 1e-9 * x.norm() + LEAK, f"{name}: {error.norm()} of {x.norm()}"
    return found


def wide(an_op, **how):
    return inputs(an_op, torch.float64, **{**SMALL, **how})


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_d2_every_dtype(name, io):
    check(op(name), inputs(op(name), io, seed=1, **{**SMALL, "T": 70}), backward=True)


@pytest.mark.parametrize("name", OPS)
def test_s5_a_loss_on_the_final_state_alone(name):
    """Every gradient, the gate's too; what the final state does not depend on has none."""
    an_op = op(name)
    found = exact(an_op, wide(an_op), ["final_state"])
    assert [each for each, x in found.items() if x is None] == ["q"]
    assert all(x.abs().max() > 0 for x in found.values() if x is not None)


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
def test_s5_in_budget(io):
    an_op = op("gated_delta")
    given = inputs(an_op, io, **{**SMALL, "T": 70})
    silent = {"o": torch.zeros_like(an_op(**given).o)}
    check(an_op, given, backward=True, cotangents=silent)


@pytest.mark.parametrize("cut", [1, 64, 75])
@pytest.mark.parametrize("name", OPS)
def test_s12_through_the_state_of_another_call(name, cut):
    """Gradients of two halves, the second from the first one's final state, are those of one call."""
    an_op = op(name)
    given = wide(an_op)
    timed = [each for each in given if "T" in an_op.whole.inputs[each].axes]

    def halves(**tensors):
        first = an_op(**{**tensors, **{each: tensors[each][:, :cut] for each in timed}})
        rest = {each: tensors[each][:, cut:] for each in timed} | {"initial_state": first.final_state}
        second = an_op(**{**tensors, **rest})
        return second._replace(o=torch.cat([first.o, second.o], dim=1))

    cotangents = cotangents_of(an_op, given)
    once, twice = ours(an_op, given, cotangents), ours(an_op, given, cotangents, halves)
    for each, x in once.items():
        assert (twice[each] - x).norm() <= 1e-10 * x.norm(), each


@pytest.mark.parametrize("T", [1, 2, 63, 64, 65, 500])
@pytest.mark.parametrize("name", OPS)
def test_s3_lengths(name, T):
    exact(op(name), wide(op(name), T=T))


SIZES = {
    "K 60, V 100": dict(K=60, V=100),
    "K 100, V 48": dict(K=100, V=48),
    "K 160, V 128": dict(K=160, V=128, T=70),
    "K 256, V 8": dict(K=256, V=8, T=70),
    "8 x 8": dict(K=8, V=8, T=8),
    "K = V = 1": dict(K=1, V=1, T=3),
    "HV = 4 H": dict(B=2, H=2, HV=8, T=70),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", OPS)
def test_b4_whatever_forward_accepts(name, sizes):
    exact(op(name), wide(op(name), **sizes))


@pytest.mark.parametrize("C", [16, 40, 50, 128])
@pytest.mark.parametrize("name", OPS)
def test_b4_chunk_lengths(name, C):
    exact(op(name, C), wide(op(name, C)))


@pytest.mark.parametrize("C", [8, 16, 40, 64, 128])
@pytest.mark.parametrize("name", PIPELINES)
def test_b4_of_the_kernels(name, C, monkeypatch):
    """What forward kernels accept their gradients' kernels accept: nothing is refused after the forward pass ran."""
    monkeypatch.setattr("chunkwise.runner.planning.plan.device_class", lambda device: "sm_90")
    monkeypatch.setattr("chunkwise.runner.calling.function.resolve_backend", lambda *_: "triton")
    an_op, accepted = op(name, C, "triton"), []
    for K in (1, 48, 128, 160, 256, 300):
        for V in (8, 80, 256, 512):
            given = inputs(an_op, torch.bfloat16, B=1, T=1, H=1, HV=1, K=K, V=V)
            call = an_op.bind({each: x.to("meta") for each, x in given.items()})
            try:
                call.forward_plan()
            except ChunkwiseError:
                continue
            accepted.append((K, V))
            assert call.backward_plan(call.joint(call.trainable(), call.wanted)).steps
    assert bool(accepted) == (C in (16, 64, 128) or "C" not in an_op.spec.axes)


@pytest.mark.parametrize("lengths", [(0, 70, 0), (1, 64, 0, 65), (129, 1), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_v1_v4_v11_packed(name, lengths):
    """Rows past the end, here nan like their output gradients, have gradients of exactly 0."""
    an_op, tokens = op(name), sum(lengths)
    given = wide(an_op, seqlens=lengths, T=tokens + 3)
    exact(an_op, given, seqlens=lengths)
    cotangents = cotangents_of(an_op, given, seqlens=lengths)
    clean = ours(an_op, given, cotangents, seqlens=lengths)
    timed = [each for each in given if "T" in an_op.whole.inputs[each].axes]
    for x in (*(given[each] for each in timed), cotangents["o"]):
        x[:, tokens:] = torch.nan
    for each, x in ours(an_op, given, cotangents, seqlens=lengths).items():
        assert same_bits(x, clean[each]), each
        assert each not in timed or not x[:, tokens:].any(), each


@pytest.mark.parametrize("name", OPS)
def test_v13_packed_without_a_state(name):
    exact(op(name), wide(op(name), seqlens=(33, 0, 40), T=73, absent=("initial_state",)), seqlens=(33, 0, 40))


@pytest.mark.parametrize("case", ["weak_gate", "strong_gate", "equal_keys", "resets"])
@pytest.mark.parametrize("name", OPS)
def test_n2_n9_n13_gates_and_keys(name, case):
    exact(op(name), wide(op(name), case=case))


@pytest.mark.parametrize("case", ["weak_gate", "strong_gate", "equal_keys"])
@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
def test_n9_n13_in_budget(io, case):
    check(op("gated_delta"), inputs(op("gated_delta"), io, case=case, **SMALL), case=case, backward=True)


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", GATED)
def test_n2_a_reset_cuts_the_gradients(name, io):
    """Nothing flows back past it; in the sum of the gate's gradient what lies behind cancels up to rounding."""
    an_op, at = op(name), 70
    given = inputs(an_op, io, **SMALL)
    given["g"][:, at] = -3e37
    timed = [each for each in given if "T" in an_op.whole.inputs[each].axes]
    cotangents = cotangents_of(an_op, given)
    found = ours(an_op, given, {"final_state": cotangents["final_state"]})
    assert all(x is None or x.isfinite().all() for x in found.values())
    assert found["initial_state"].abs().max() < LEAK
    assert all(found[each][:, :at].abs().max() < LEAK for each in timed if each not in ("q", "g"))
    assert found["g"][:, :at].abs().max() <= 1e-6 * found["g"].abs().max()
    assert not found["g"][:, at].any()


@pytest.mark.parametrize("io", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("value", [-300.0, -1e4, -3e38, -float("inf")])
@pytest.mark.parametrize("name", GATED)
def test_n15_decays_that_underflow(name, value, io):
    """Whole chunks, and every second token: the exponent is masked before it is taken, so that nothing is inf * 0."""
    an_op = op(name)
    given = inputs(an_op, io, **SMALL)
    given["g"][:, 64:128] = value
    given["g"][:, 1:64:2] = value
    if io == torch.float64 and value > -1e38:
        exact(an_op, given)
    found = ours(an_op, given, cotangents_of(an_op, given))
    assert all(x.isfinite().all() for x in found.values())


@pytest.mark.parametrize("A_log,a", [(100.0, -200.0), (90.0, 50.0), (3e38, 1.0), (-3e38, 1.0), (0.0, -3e38)])
def test_n17_gates_at_the_ends_of_float32(A_log, a):
    an_op = op("qwen3_next_gdn")
    given = inputs(an_op, **SMALL)
    given["A_log"], given["dt_bias"] = torch.full([2], A_log), torch.zeros(2)
    given["a"] = torch.full_like(given["a"], a)
    found = ours(an_op, given, cotangents_of(an_op, given))
    assert all(x.isfinite().all() for x in found.values())
    # a decay of 1 or of 0, whatever the gate does nearby
    assert all(found[each].abs().max() < LEAK for each in ("A_log", "a", "dt_bias"))


@pytest.mark.parametrize("name", OPS)
def test_n22_rows_of_zeros(name):
    """Padding: finite gradients everywhere, also where the op normalises the row."""
    an_op, given = op(name), wide(op(name))
    for each in {"q", "k"} & given.keys():
        given[each][:, [0, 5, 33, 129]] = 0
    exact(an_op, given)
    narrow = {each: x.float() for each, x in given.items()}
    assert all(x.isfinite().all() for x in ours(an_op, narrow, cotangents_of(an_op, narrow)).values())


@pytest.mark.parametrize("amplitude", [1e-3, 1e-4])
def test_n21_short_rows(amplitude):
    given = wide(op("qwen3_next_gdn"))
    exact(op("qwen3_next_gdn"), {**given, "q": amplitude * given["q"], "k": amplitude * given["k"]})


@pytest.mark.parametrize("name", OPS)
def test_l13_params(name):
    an_op, given = op(name), wide(op(name))
    usual = exact(an_op, given)
    for param in an_op.spec.params:
        assert not torch.equal(exact(an_op, given, params={param: 0.5})["v"], usual["v"])


@pytest.mark.parametrize("seqlens", [None, (33, 0, 97)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", OPS)
def test_l12_nothing_is_written(name, seqlens):
    """Inputs, outputs and output gradients keep their bits through two backward passes with the same result."""
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16, seqlens=seqlens, **SMALL)
    d_o = cotangents_of(an_op, given, ["o"], seqlens)["o"]
    leaves = {each: given[each].requires_grad_() for each in able(an_op, given)}
    out = an_op(**given, seqlens=seqlens)
    watched = {**given, "d_o": d_o, "output": out.o, "state": out.final_state}
    before = {each: x.detach().clone() for each, x in watched.items()}
    first, again = (
        torch.autograd.grad(out.o, list(leaves.values()), d_o, retain_graph=True, allow_unused=True) for _ in range(2)
    )
    assert all(same_bits(x.detach(), before[each]) for each, x in watched.items())
    assert all(same_bits(x, y) for x, y in zip(first, again))


B3 = """\
schema: pipeline/v1
name: optional_gate
axes: {C: 64}
inputs:
  q: B T H K
  k: B T H K
  v: B T HV V
  g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token, where: "<= 0", optional: true, default: 0}
  initial_state: {shape: N HV K V, dtype: f32, unit: state/sequence_start, optional: true}
definition:
  state: {S: initial_state}
  step:
    - S = exp(g) * S
    - S = S + outer(k, v)
    - o = q @ S
  final: {final_state: S}
stages:
  cumsum: {use: chunk_local_cumsum, in: {x: g}}
  scan:   {use: chunk_h, in: {k: k, v: v, g: cumsum.y, initial_state: initial_state}}
  out:    {use: chunk_o, in: {q: q, k: k, v: v, h: scan.h, g: cumsum.y}, with: {scale: 1}}
outputs: {o: out.o, final_state: scan.final_state}
"""


def test_b3_an_absent_gate_has_no_gradient(tmp_path):
    (tmp_path / "gate.yaml").write_text(B3)
    an_op = load(tmp_path / "gate.yaml", backend="reference")
    given = wide(an_op)
    assert "g" in exact(an_op, given)
    for absent in (("g",), ("g", "initial_state")):
        without = {**given, **dict.fromkeys(absent)}
        assert exact(an_op, without).keys() == given.keys() - set(absent)
