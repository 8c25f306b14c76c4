"""Hard gates, keys and numbers: the N cases, and L15."""

import pytest
import torch
from support.ops import GATED, LITTLE, OPS, check, definition, inputs, op, same_bits

RESET = -3e37
DTYPES = [torch.float32, torch.bfloat16]


def at(given, name, t, value):
    """The same inputs, with one token of one of them overwritten."""
    x = given[name].clone()
    x[:, t] = value
    return {**given, name: x}


@pytest.mark.parametrize("io", DTYPES, ids=str)
@pytest.mark.parametrize("name", GATED)
def test_n2_a_reset_starts_afresh(name, io):
    """A log decay of -3e37 at t = 0, inside a chunk, at a chunk's edge and several times in a chunk."""
    an_op = op(name)
    given = inputs(an_op, io, T=150, **LITTLE)
    for t in (0, 21, 25, 40, 64, 127):
        given = at(given, "g", t, RESET)
    check(an_op, given)


@pytest.mark.parametrize("name", GATED)
def test_n2_equals_the_two_parts_run_alone(name):
    an_op, cut = op(name), 40
    given = at(inputs(an_op, T=100, **LITTLE, absent=("initial_state",)), "g", cut, RESET)
    first = {n: None if x is None else x[:, :cut].contiguous() for n, x in given.items()}
    second = {n: None if x is None else x[:, cut:].contiguous() for n, x in given.items()}
    whole, parts = definition(an_op, given), [definition(an_op, each) for each in (first, second)]
    assert torch.equal(whole["o"], torch.cat([each["o"] for each in parts], dim=1))
    assert torch.equal(whole["final_state"], parts[1]["final_state"])
    check(an_op, given)


@pytest.mark.parametrize("io", DTYPES, ids=str)
def test_n2_a_reset_by_the_gate_inside_the_op(io):
    """exp(80) softplus(-80) is 1; softplus(5) makes of it -2.8e35."""
    an_op = op("qwen3_next_gdn")
    given = inputs(an_op, io, T=90)
    given["A_log"], given["dt_bias"] = torch.full([4], 80.0), torch.zeros(4)
    given["a"] = torch.full_like(given["a"], -80)
    given = at(at(given, "a", 0, 5), "a", 30, 5)
    check(an_op, given)


@pytest.mark.parametrize("T", [7, 50, 1000])
@pytest.mark.parametrize("share", [0.0, 0.5], ids=["all", "some"])
@pytest.mark.parametrize("name", GATED)
def test_n3_gates_of_zero(name, share, T):
    """Gates all 0, or 0 at a random half of the tokens."""
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16, B=1, T=T, K=32, V=24)
    given["k"] = torch.nn.functional.normalize(given["k"].float(), dim=-1).bfloat16()
    kept = torch.rand(given["g"].shape, generator=torch.Generator().manual_seed(T)) < share
    given["g"] = torch.where(kept, given["g"], 0.0)
    check(an_op, given, case="weak_gate")


@pytest.mark.parametrize("T", [7, 50, 1000])
def test_n3_equals_the_ungated_delta_rule(T):
    gated, ungated = op("gated_delta"), op("delta_rule")
    given = inputs(gated, torch.bfloat16, T=T, **LITTLE)
    given["g"] = torch.zeros_like(given["g"])
    without = {name: x for name, x in given.items() if name != "g"}
    for name, x in definition(gated, given).items():
        assert torch.equal(x, definition(ungated, without)[name])
    check(gated, given)
    check(ungated, without)


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("C", [16, 64, 128])
@pytest.mark.parametrize("name", GATED)
def test_n9_log_decays_down_to_minus_20(name, C, io):
    check(op(name, C), inputs(op(name, C), io, case="strong_gate", T=130, **LITTLE), case="strong_gate")


def test_n9_by_the_gate_inside_the_op():
    an_op = op("qwen3_next_gdn")
    given = inputs(an_op, torch.bfloat16)
    given["A_log"], given["dt_bias"] = torch.full([4], 3.0), torch.zeros(4)
    assert -float(torch.exp(given["A_log"][0]) * torch.nn.functional.softplus(given["a"].float()).max()) < -20
    check(an_op, given)


@pytest.mark.parametrize("value", [-300.0, -1e4, -3e38, -float("inf")])
@pytest.mark.parametrize("name", GATED)
def test_n15_decays_that_underflow(name, value):
    """Whole chunks, and every second token, with a decay that no float holds."""
    an_op = op(name)
    given = inputs(an_op, T=130, **LITTLE)
    given["g"][:, 64:128] = value
    given["g"][:, 1:64:2] = value
    check(an_op, given)


IDENTICAL = [
    (16, 0.99, 0.0, torch.float32), (16, 0.999, -1e-3, torch.float32), (16, 1.0, 0.0, torch.bfloat16),
    (64, 0.99, -1e-3, torch.float32), (64, 0.999, 0.0, torch.bfloat16), (64, 1.0, -1e-3, torch.bfloat16),
    (130, 0.99, 0.0, torch.bfloat16), (130, 0.999, -1e-3, torch.bfloat16),
    (130, 1.0, 0.0, torch.float32), (130, 1.0, 0.0, torch.bfloat16),
]  # fmt: skip
"""Every pair of a length, a beta, a gate and a dtype, and the hardest of all in both dtypes."""


@pytest.mark.parametrize("same,beta,gate,io", IDENTICAL, ids=str)
def test_n13_identical_tokens(same, beta, gate, io):
    """16, 64 and T equal tokens with unit keys, beta close to 1, no or a weak decay."""
    an_op = op("gated_delta")
    given = inputs(an_op, io, T=130, **LITTLE)
    for name in "qkv":
        given[name][:, 3 : 3 + same] = given[name][:, 3:4]
    given["beta"], given["g"] = torch.full_like(given["beta"], beta), torch.full_like(given["g"], gate)
    check(an_op, given, case="equal_keys")


@pytest.mark.parametrize("A_log,a", [(90.0, 50.0), (3e38, 1.0), (-3e38, 1.0), (0.0, -3e38), (100.0, -100.0)])
def test_n17_gates_at_the_ends_of_float32(A_log, a):
    an_op = op("qwen3_next_gdn")
    given = inputs(an_op, T=30, **LITTLE)
    given["A_log"], given["dt_bias"] = torch.full([2], A_log), torch.zeros(2)
    check(an_op, {**given, "a": torch.full_like(given["a"], a)})


def test_n17_a_gate_of_inf_times_zero():
    """A_log = 100, a = -200, bias 0: the decay is 1."""
    an_op = op("qwen3_next_gdn")
    given = inputs(an_op)
    given["a"], given["dt_bias"] = torch.full_like(given["a"], -200), torch.zeros(4)
    given["A_log"] = torch.full([4], 100.0)
    decay = torch.exp(an_op.until("gate")(a=given["a"], A_log=given["A_log"], dt_bias=given["dt_bias"]).g)
    assert torch.equal(decay, torch.ones_like(decay))
    check(an_op, given)


@pytest.mark.parametrize("io", DTYPES, ids=str)
@pytest.mark.parametrize("amplitude", [1e-3, 1e-4])
def test_n21_normalisation_of_short_rows(amplitude, io):
    """eps stands inside the root: rows of amplitude 1e-4 stay well below length 1."""
    an_op = op("qwen3_next_gdn")
    given = inputs(an_op, io, **LITTLE | dict(K=128))
    given["q"], given["k"] = amplitude * given["q"], amplitude * given["k"]
    check(an_op, given)
    lengths = an_op.until("knorm")(k=given["k"]).y.double().norm(dim=-1)
    softened = 1 / (1 + 1e-6 / given["k"].double().square().sum(-1)).sqrt()
    torch.testing.assert_close(lengths, softened, rtol=2 * torch.finfo(io).eps, atol=0)


@pytest.mark.parametrize("io", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_n22_rows_of_zeros(name, io):
    """A padding row, q and k exactly 0: its output is exactly 0 and what it carries as v reaches no other row."""
    an_op, rows = op(name), [0, 5, 33, 69]
    given = inputs(an_op, io, **LITTLE)
    for row in rows:
        given = at(at(given, "q", row, 0), "k", row, 0)
    check(an_op, given)
    out = an_op(**given)
    assert not out.o[:, rows].any()
    for row in rows:
        given = at(given, "v", row, 1e4)
    other = an_op(**given)
    assert same_bits(out.o, other.o) and same_bits(out.final_state, other.final_state)


def test_l15_decay_then_error_then_write():
    """The gated delta rule by hand, in the order in which the paper has it, against the definition and the op."""
    an_op = op("gated_delta")
    given = inputs(an_op, torch.float64, B=1, T=20, H=1, HV=1, K=5, V=3)
    q, k, v, g, beta = (given[name][0, :, 0] for name in ("q", "k", "v", "g", "beta"))
    S, rows = given["initial_state"][0, 0].clone(), []
    for t in range(20):
        S = torch.exp(g[t]) * S
        error = v[t] - k[t] @ S
        S = S + beta[t] * torch.outer(k[t], error)
        rows.append(5**-0.5 * (q[t] @ S))
    found = definition(an_op, given)
    torch.testing.assert_close(found["o"][0, :, 0], torch.stack(rows), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(found["final_state"][0, 0], S, rtol=1e-13, atol=1e-14)
    check(an_op, given)
