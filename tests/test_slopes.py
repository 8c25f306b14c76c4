"""Linear attention, retention, lightning: no kernel of their own, the right slopes everywhere, fla's functions."""

import inspect
import math

import pytest
import torch
from support.ops import RAGGED, inputs, op, refusal, same_bits

from chunkwise import runner
from chunkwise.runner import (
    chunk_lightning_attn,
    chunk_retention,
    chunk_simple_gla,
    lightning_slopes,
    load,
    retention_slopes,
)
from chunkwise.runner.calling import drop_in_slopes
from chunkwise.runner.verification.generate import CASES
from chunkwise.stages import _laws

SLOPES = {"retention": retention_slopes, "lightning": lightning_slopes}
NAMES = ("linear_attn", *SLOPES)
LAYER = (3, 12)
FUNCTIONS = {"retention": (chunk_retention, ()), "lightning": (chunk_lightning_attn, LAYER)}
"""Pipeline -> the function that calls it, and the layer that it asks for."""


def retention_by_hand(h, heads):
    return math.log1p(-(2.0 ** (-5 - h)))


def lightning_by_hand(h, heads, layer=0, layers=1):
    return -8 / heads * (1 - layer / layers) * h


BY_HAND = {"retention": retention_by_hand, "lightning": lightning_by_hand}


@pytest.mark.parametrize("name, arguments, message", [
    ("retention", (-1,), "heads must be a whole number from 0, it is -1"),
    ("lightning", (2.5,), "heads must be a whole number from 0, it is 2.5"),
    ("lightning", (4, 9, 3), "layer must lie in 0..layers, it is 9 of 3"),
    ("lightning", (4, 0, 0), "layer must lie in 0..layers, it is 0 of 0"),
])  # fmt: skip
def test_slopes_of_no_model(name, arguments, message):
    """A layer beyond the last one would have heads that grow."""
    with pytest.raises(ValueError) as caught:
        SLOPES[name](*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("heads", [0, 1, 7, 128])
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_are_right_to_the_last_digit(name, heads):
    """In float32, log(1 - 2^(-5 - h)) would be 0 from head 20 on."""
    layers = [(), (0, 24), LAYER, (24, 24)] if name == "lightning" else [()]
    for layer in layers:
        right = torch.tensor([BY_HAND[name](h, heads, *layer) for h in range(heads)], dtype=torch.float64)
        for dtype in (torch.float32, torch.float64):
            found = SLOPES[name](heads, *layer, dtype=dtype)
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), right, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("name", SLOPES)
def test_a_law_of_slopes_holds_for_slopes_alone(name):
    law = _laws.parse(f"{name}_slopes(HV)")
    slopes = _laws.sample(law, torch.randn(96), ("HV",))
    assert torch.equal(slopes, SLOPES[name](96)) and not wrong(law, slopes).any()
    assert law.implies(law) and law.implies(_laws.parse("<= 0")) and not law.implies(_laws.parse("-5..0"))
    for broken in (2 * slopes, slopes.roll(1), slopes + 1e-4, -slopes, torch.full_like(slopes, math.nan)):
        assert wrong(law, broken).any()
    one = slopes.clone()
    one[5] *= 1 + 1e-5
    assert wrong(law, one).nonzero().tolist() == [[5]]


def wrong(law, x):
    return _laws.violations(law, x, ("HV",), C=64)


def test_what_the_laws_of_slopes_tell_apart():
    retention, lightning = (_laws.parse(f"{name}_slopes(HV)") for name in SLOPES)
    in_float32 = torch.log(1 - 2.0 ** (-5 - torch.arange(32).float()))
    assert wrong(retention, in_float32)[20:].all()
    for layer in range(25):
        assert not wrong(lightning, lightning_slopes(96, layer, 24)).any()
    assert wrong(lightning, lightning_slopes(48).repeat(2)).any()
    assert not wrong(lightning, torch.zeros(1)).any() and wrong(lightning, torch.ones(1)).all()


def test_a_law_of_slopes_minds_its_axis():
    law = _laws.parse("lightning_slopes(HV)")
    x = _laws.sample(law, torch.randn(3, 5, 2), ("A", "HV", "B"))
    assert torch.equal(x, lightning_slopes(5)[:, None].expand(3, 5, 2))
    x = x.clone()
    x[1, 4, 0] = 1.0
    assert _laws.violations(law, x, ("A", "HV", "B"), 64).any(dim=1).nonzero().tolist() == [[1, 0]]


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SLOPES)
def test_generated_inputs_have_the_slopes_of_the_op(name, case, io):
    dtype = torch.float64 if io == torch.float64 else torch.float32
    given = inputs(op(name), io, case=case, seed=3, H=8, HV=32)
    assert same_bits(given["g_gamma"], SLOPES[name](32, dtype=dtype))


@pytest.mark.parametrize("name", NAMES)
def test_no_stage_of_their_own(name):
    assert {entry.use for entry in op(name).spec.stages.values()} == {"chunk_h", "chunk_o"}


@pytest.mark.parametrize("seqlens", [None, RAGGED], ids=["plain", "packed"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_simple_gla_under_that_gate(name, seqlens):
    """Outputs and gradients in float64, where nothing hides in rounding."""
    given = inputs(op(name), torch.float64, seqlens=seqlens)
    slopes = given.get("g_gamma", torch.zeros(given["v"].shape[2], dtype=torch.float64))
    gated = {**given, "g": slopes.expand(given["v"].shape[:3]).contiguous()}
    gated.pop("g_gamma", None)
    ours, theirs = with_gradients(op(name), given, seqlens), with_gradients(op("simple_gla"), gated, seqlens)
    assert ours.keys() == theirs.keys() and len(ours) == 6
    for each, x in ours.items():
        torch.testing.assert_close(x, theirs[each], rtol=1e-11, atol=1e-11)


def with_gradients(an_op, given, seqlens):
    leaves = {each: x.clone().requires_grad_(each not in ("g", "g_gamma")) for each, x in given.items()}
    out = an_op(**leaves, seqlens=seqlens)
    (out.o.sin().sum() + out.final_state.square().sum()).backward()
    gradients = {f"d_{each}": x.grad for each, x in leaves.items() if x.requires_grad}
    return {"o": out.o.detach(), "final_state": out.final_state.detach(), **gradients}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_have_no_gradient_and_say_so(name):
    given = inputs(op(name))
    given["g_gamma"].requires_grad_()
    found = refusal(op(name), **given)
    assert any("g_gamma" in each.message for each in found)
    assert any("detach g_gamma" in (each.help or "") for each in found)


@pytest.mark.parametrize("name", SLOPES)
def test_missing_slopes_are_missed_with_where_to_get_them(name):
    given = inputs(op(name))
    given.pop("g_gamma")
    (found,) = refusal(op(name), **given)
    assert "g_gamma" in found.message and f"runner.{name}_slopes" in found.help


@pytest.mark.parametrize("name", FUNCTIONS)
def test_drop_in_equals_the_recurrence(name):
    function, layer = FUNCTIONS[name]
    given = inputs(op(name), torch.float64, T=37)
    given.pop("g_gamma")
    q, k, v, S = given["q"], given["k"], given["v"], given["initial_state"]
    o, final_state = function(q, k, v, *layer, initial_state=S, output_final_state=True, chunk_size=16)
    heads, group = v.shape[2], v.shape[2] // k.shape[2]
    decay = torch.tensor([math.exp(BY_HAND[name](h, heads, *layer)) for h in range(heads)], dtype=torch.float64)
    for t in range(v.shape[1]):
        key, query = (x[:, t].repeat_interleave(group, dim=1) for x in (k, q))
        S = decay[:, None, None] * S + key[..., None] * v[:, t, :, None]
        torch.testing.assert_close(o[:, t], k.shape[-1] ** -0.5 * (query[..., None] * S).sum(2), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(final_state, S, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_drop_in_equals_the_op(name, io):
    """Packed, with the arguments that it passes on, and a gradient; mixed dtypes are cast."""
    function, layer = FUNCTIONS[name]
    given = inputs(op(name, 32), io, seqlens=RAGGED)
    given["g_gamma"] = SLOPES[name](given["v"].shape[2], *layer)
    ends = torch.tensor([0, *RAGGED]).cumsum(0)
    out = op(name, 32)(**given, scale=0.5, cu_seqlens=ends)
    v = given["v"].double().requires_grad_()
    rest = (*layer, 0.5, given["initial_state"].mT, True, ends, ends)
    o, state = function(given["q"], given["k"], v, *rest, state_v_first=True, chunk_size=32)
    assert same_bits(o.detach(), out.o) and same_bits(state.detach().mT.contiguous(), out.final_state)
    o.float().sum().backward()
    assert v.grad.dtype == torch.float64 and v.grad.any()
    assert function(given["q"], given["k"], given["v"], *layer)[1] is None


def test_drop_in_parameters_stand_where_callers_expect_them():
    names = "scale initial_state output_final_state cu_seqlens"
    for (function, _), first in zip(FUNCTIONS.values(), ("q k v", "q k v layer_idx num_layers")):
        parameters = inspect.signature(function).parameters.values()
        positional = " ".join(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        assert positional == f"{first} {names} cu_seqlens_cpu"


REFUSALS = [
    ({"head_first": True}, "head_first"),
    ({"g_gamma": torch.zeros(4)}, "g_gamma"),
    ({"v": [1.0]}, "v must be"),
    ({"q": [1.0]}, "q "),
    ({"chunk_size": 40}, "chunk_size"),
]


@pytest.mark.parametrize("given, named", REFUSALS, ids=[named for _, named in REFUSALS])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_drop_in_refuses_by_name(name, given, named):
    function, layer = FUNCTIONS[name]
    tensors = {each: x for each, x in inputs(op(name)).items() if each in "qkv"}
    keywords = dict(zip(("layer_idx", "num_layers"), layer))
    assert named in refusal(function, **{**tensors, **keywords, **given})[0].message


@pytest.mark.parametrize("layer", [(-1, 12), (13, 12), (0, 0), (1.5, 12), (None, 12)], ids=str)
def test_a_layer_that_is_none_is_refused(layer):
    given = inputs(op("lightning"))
    assert "layer_idx" in refusal(chunk_lightning_attn, given["q"], given["k"], given["v"], *layer)[0].message


def test_slopes_are_made_once_and_fit_for_training(monkeypatch):
    """Also when the first call is made in inference mode, or without data."""
    monkeypatch.setattr(drop_in_slopes, "_slopes", {})
    given = inputs(op("retention"))
    q, k, v = (given[each] for each in "qkv")
    with torch.inference_mode():
        chunk_retention(q, k, v)
    with torch.device("meta"):
        chunk_retention(q, k, v)
    o, _ = chunk_retention(q, k, v.clone().requires_grad_())
    o.sum().backward()
    assert len(drop_in_slopes._slopes) == 1
    first = next(iter(drop_in_slopes._slopes.values()))
    assert drop_in_slopes.slopes(retention_slopes, q, v) is first
    assert drop_in_slopes.slopes(retention_slopes, q.double(), v.double()).dtype == torch.float64


@pytest.mark.parametrize("name", FUNCTIONS)
def test_drop_in_inside_compiled_code(name):
    function, layer = FUNCTIONS[name]
    given = inputs(op(name), B=1, T=20, H=1, HV=2, K=16, V=24)
    q, k, v = (given[each] for each in "qkv")
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert same_bits(compiled(q, k, v, *layer)[0], function(q, k, v, *layer)[0])


def test_without_a_decay_simple_gla_is_linear_attention():
    given = inputs(op("linear_attn"))
    o, state = chunk_simple_gla(**given, output_final_state=True)
    out = load("linear_attn")(**given)
    assert same_bits(o, out.o) and same_bits(state, out.final_state)


@pytest.mark.parametrize("name", ["chunk_retention", "fused_recurrent_retention"])
def test_nested_values_are_refused_by_name(name):
    q = torch.ones(2, 3, 1, 8)
    nested = torch.nested.nested_tensor([torch.ones(3, 1, 8), torch.ones(2, 1, 8)])
    (error,) = refusal(getattr(runner, name), q, q, nested)
    assert error.message == "v must be a dense tensor [B, T, HV, V], it is no dense one"


@pytest.mark.parametrize("seed", range(8))
def test_a_decay_in_16_bits_has_a_gradient_that_is_rounded_once(seed):
    torch.manual_seed(seed)
    q, k, v = (torch.randn(1, 9, 1, 8) for _ in range(3))
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        g_gamma = torch.tensor([-0.0625], dtype=dtype, requires_grad=True)
        runner.chunk_simple_gla(q, k, v, g_gamma=g_gamma)[0].sum().backward()
        found.append(g_gamma.grad)
    assert found[0] == found[1].to(torch.bfloat16)


@pytest.mark.parametrize("make", [retention_slopes, lightning_slopes])
def test_slopes_that_a_dtype_cannot_hold_are_refused(make):
    with pytest.raises(ValueError, match="dtype must be a floating-point dtype, it is torch.int32"):
        make(4, dtype=torch.int32)


def test_values_without_a_batch_are_refused_with_their_shape():
    (error,) = refusal(runner.chunk_retention, *(torch.ones(3, 1, 8) for _ in range(3)))
    assert error.message == "v must be a dense tensor [B, T, HV, V], it has the shape [3, 1, 8]"
