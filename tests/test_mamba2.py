"""Mamba-2: what it shares with simple_gla, its own two stages, the recurrence in Mamba's terms, hard steps."""

import pytest
import torch
from support.ops import RAGGED, check, inputs, op, refusal

from chunkwise.stages import discretize, skip

CONSTANTS = ("A_log", "d_skip", "dt_bias")
"""One number per head: their gradients are sums over all tokens."""


def gradients_agree(stage, given):
    """The stage's vjp against autograd of its reference, float64, all gradients and each alone."""
    given = {name: x.double().requires_grad_() for name, x in given.items()}
    (out,) = stage.reference(**given).values()
    d_out = torch.randn_like(out)
    expected = dict(zip(given, torch.autograd.grad(out, list(given.values()), d_out), strict=True))
    read = [x for name, x in given.items() if name != "y"]
    for needs in (frozenset(given), *(frozenset([name]) for name in given)):
        found = stage.vjp(d_out, *read, needs=needs)
        assert found.keys() == needs
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-10)


def test_vjp_equals_autograd():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 3, 40)
    gradients_agree(discretize, {"x": x, "dt": 10 * torch.randn(2, 5, 3), "dt_bias": torch.randn(3)})
    gradients_agree(skip, {"y": torch.randn_like(x), "x": x, "weight": torch.randn(3)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_of_any_length(dtype):
    """softplus is z far above 0 and exp(z) far below, and its derivative 1 and exp(z)."""
    dt = torch.tensor([-400.0, -50.0, 0.0, 50.0, 4e4], dtype=dtype).view(1, 5, 1)
    x, bias = torch.ones(1, 5, 1, 1, dtype=dtype), torch.zeros(1, dtype=dtype)
    steps = discretize.reference(x, dt, bias)["v"].flatten()
    z = dt.double().flatten()
    right = torch.where(z > 30, z, torch.log1p(torch.exp(z.clamp(max=30))))
    torch.testing.assert_close(steps.double(), right, rtol=1e-6, atol=1e-43)
    slopes = discretize.vjp(torch.ones_like(x), x, dt, bias, needs=frozenset({"dt"}))["dt"].flatten()
    torch.testing.assert_close(slopes.double(), torch.sigmoid(z), rtol=1e-6, atol=1e-43)


def test_two_stages_of_its_own():
    own = {entry.use for entry in op("mamba2").spec.stages.values()} - set(simple_gla_stages())
    assert own == {"decay_gate", "discretize", "skip"}
    assert "decay_gate" in {entry.use for entry in op("qwen3_next_gdn").spec.stages.values()}


def simple_gla_stages():
    return [entry.use for entry in op("simple_gla").spec.stages.values()]


def by_simple_gla(x, dt, A_log, b, c, d_skip, dt_bias, initial_state, **seqs):
    """(o, final state): the same op from simple_gla and PyTorch around it."""
    d = torch.nn.functional.softplus(dt + dt_bias, threshold=1e3)
    g, v = -torch.exp(A_log) * d, d[..., None] * x
    out = op("simple_gla")(q=c, k=b, v=v, g=g, initial_state=initial_state, scale=1.0, **seqs)
    return out.o + d_skip[:, None] * x, out.final_state


def leaves(given):
    return {name: x.clone().requires_grad_() for name, x in given.items() if x is not None}


def backward(o, final_state):
    (o.sin().sum() + final_state.square().sum()).backward()


def gradients(given):
    return {name: x.grad for name, x in given.items()}


@pytest.mark.parametrize("seqlens", [None, RAGGED], ids=["plain", "packed"])
def test_is_simple_gla(seqlens):
    """q = c, k = b, v = d x, g = -d exp(A_log), scale 1; the gradient of dt comes by both v and g. Float64."""
    given = inputs(op("mamba2"), torch.float64, seqlens=seqlens)
    ours, theirs = leaves(given), leaves(given)
    out = op("mamba2")(**ours, seqlens=seqlens)
    o, final_state = by_simple_gla(**theirs, seqlens=seqlens)
    torch.testing.assert_close((out.o, out.final_state), (o, final_state), rtol=1e-10, atol=1e-10)
    backward(out.o, out.final_state)
    backward(o, final_state)
    torch.testing.assert_close(gradients(ours), gradients(theirs), rtol=1e-9, atol=1e-9)


def test_is_the_state_space_model():
    """h <- exp(dt A) h + dt B x, y = C h + D x for each channel p of head h, B and C those of the head's group."""
    given = inputs(op("mamba2"), torch.float64, T=21, H=2, HV=6)
    x, b, c = (given[name] for name in "xbc")
    (batch, T, heads, P), (groups, states) = x.shape, b.shape[2:]
    dt = torch.log1p(torch.exp(given["dt"] + given["dt_bias"]))
    A = -torch.exp(given["A_log"])
    h = given["initial_state"].mT
    out = op("mamba2")(**given)
    for t in range(T):
        for n in range(heads):
            B, C = (each[:, t, n // (heads // groups)].view(batch, 1, states) for each in (b, c))
            step = dt[:, t, n].view(batch, 1, 1)
            new = torch.exp(step * A[n]) * h[:, n] + step * B * x[:, t, n].view(batch, P, 1)
            h = torch.cat([h[:, :n], new[:, None], h[:, n + 1 :]], dim=1)
            y = (C * new).sum(-1) + given["d_skip"][n] * x[:, t, n]
            torch.testing.assert_close(out.o[:, t, n], y, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(out.final_state, h.mT, rtol=1e-10, atol=1e-10)


def trained(io, **keywords):
    """Inputs as a model has them when training begins: A in 1..16, steps of 1e-3 to 1e-1, D = 1."""
    given = inputs(op("mamba2"), io, **keywords)
    heads = len(given["A_log"])
    steps = torch.logspace(-3, -1, heads)
    return {
        **given,
        "dt": 0.1 * given["dt"],
        "A_log": torch.linspace(1, 16, heads).log(),
        "dt_bias": steps + torch.log(-torch.expm1(-steps)),
        "d_skip": torch.ones(heads),
    }


@pytest.mark.parametrize("seqlens", [None, RAGGED], ids=["plain", "packed"])
@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
def test_as_models_start(io, seqlens):
    check(op("mamba2"), trained(io, seqlens=seqlens, B=1, H=1, HV=2), seqlens=seqlens, backward=True)


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
def test_strong_decay(io):
    """N9, N15: decays down to exp(-20) and beyond at every token."""
    given = trained(io, T=50)
    given["dt_bias"], given["A_log"] = torch.full_like(given["dt_bias"], 5.0), torch.tensor([0.0, 1.0, 2.0, 3.0])
    check(op("mamba2"), given, backward=True)


def test_a_step_of_no_length_with_a_steep_decay():
    """N17: A_log = 100 and dt = -200 is a decay of 1 and a write of 0, with finite gradients."""
    given = leaves(inputs(op("mamba2"), torch.float32, T=20))
    with torch.no_grad():
        given["A_log"].fill_(100.0)
        given["dt"].fill_(-200.0)
        given["dt_bias"].zero_()
    out = op("mamba2")(**given)
    torch.testing.assert_close(out.final_state, given["initial_state"], rtol=0, atol=0)
    backward(out.o, out.final_state)
    assert all(x.grad.isfinite().all() for x in given.values())


@pytest.mark.parametrize("chunks", [1, 2])
def test_two_calls_equal_one(chunks):
    """S12: the state carries over, and the gradient through it."""
    given = inputs(op("mamba2", 16), torch.float64, T=45)
    whole, halves = leaves(given), leaves(given)
    backward(*op("mamba2", 16)(**whole))
    at = 16 * chunks + 5
    parts = [{n: x[:, rows] if x.dim() > 2 else x for n, x in halves.items()} for rows in (slice(at), slice(at, None))]
    first = op("mamba2", 16)(**{**parts[0], "initial_state": halves["initial_state"]})
    second = op("mamba2", 16)(**{**parts[1], "initial_state": first.final_state})
    backward(torch.cat([first.o, second.o], dim=1), second.final_state)
    torch.testing.assert_close(gradients(halves), gradients(whole), rtol=1e-9, atol=1e-9)


def test_gradients_of_constants_over_packed_sequences():
    """They are the sums over the sequences, each alone; rows past the last one, full of nan, have no part in them."""
    given = inputs(op("mamba2"), torch.float64, seqlens=RAGGED, B=1, T=sum(RAGGED) + 4)
    given = {name: poisoned(x) if x.dim() > 2 and name != "initial_state" else x for name, x in given.items()}
    packed = leaves(given)
    out = op("mamba2")(**packed, seqlens=RAGGED)
    backward(out.o, out.final_state)
    sums = {name: torch.zeros_like(packed[name]) for name in CONSTANTS}
    for n, (length, end) in enumerate(zip(RAGGED, torch.tensor(RAGGED).cumsum(0))):
        rows = slice(int(end) - length, int(end))
        alone = leaves({name: x if name in CONSTANTS else x[:, rows] for name, x in given.items()})
        alone["initial_state"] = given["initial_state"][n : n + 1]
        backward(*op("mamba2")(**alone))
        for name in CONSTANTS:
            sums[name] += alone[name].grad
    for name in CONSTANTS:
        torch.testing.assert_close(packed[name].grad, sums[name], rtol=1e-9, atol=1e-9)
    assert not out.o[:, sum(RAGGED) :].any() and not packed["x"].grad[:, sum(RAGGED) :].any()


def poisoned(x):
    x = x.clone()
    x[:, sum(RAGGED) :] = float("nan")
    return x


@pytest.mark.parametrize("sizes", [dict(H=2, HV=3), dict(H=4, HV=2)], ids=str)
def test_heads_come_in_whole_groups(sizes):
    """E5."""
    assert "HV % H == 0" in refusal(op("mamba2"), **inputs(op("mamba2"), **sizes))[0].message


def test_a_gradient_nobody_asked_for_is_not_computed():
    """Training the steps' bias alone needs neither the inputs' nor the steps' gradients."""
    given = inputs(op("mamba2"))
    call = op("mamba2").bind(given)
    joint = call.joint(["dt_bias"], ["o"])
    (step,) = (step for step in call.backward_plan(joint).steps if step.node.id == "write.vjp")
    assert [port for port, value in step.outputs.items() if value] == ["d_dt_bias"]
