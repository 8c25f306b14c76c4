"""Kimi Delta Attention: gates, gradients, resets, strong gates, equal tokens, causality."""

import pytest
import torch
from support.channel_stages import before, check_causality, check_split, check_vjp, cut, token_gradients
from support.ops import LITTLE, check, definition, inputs, op

from chunkwise.runner.compiling.meta_launches import meta_launches
from chunkwise.runner.stage_files.stage_library import find_stages
from chunkwise.stages import chunk_delta_h_k, kda_gate, kda_gate_bounded, kda_intra, recompute_w_u_k

STAGES = [kda_intra, recompute_w_u_k, chunk_delta_h_k]
OUTPUTS = [(stage, only) for stage in STAGES for only in (None, *stage.CONTRACT.outputs)]
DTYPES = pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
RESET = -3e37


@pytest.mark.parametrize("T,C", [(37, 16), (32, 16), (1, 64), (0, 16), (50, 40)])
@pytest.mark.parametrize("stage,only", OUTPUTS, ids=lambda x: getattr(x, "__name__", x or "all").rpartition(".")[2])
def test_vjps_equal_autograd(stage, only, T, C):
    """All cotangents, or only one; C = 40 is no power of two."""
    check_vjp(stage, T, C, only, scale=0.7)


@pytest.mark.parametrize("stage", [kda_gate, kda_gate_bounded], ids=["softplus", "bounded"])
def test_gates_vjp_equals_autograd(stage):
    check_vjp(stage, 37, 16, bound=-3.0)


@pytest.mark.parametrize(
    "device, io, K, C, own",
    [
        ("sm_90", torch.bfloat16, 128, 64, True),
        ("sm_90", torch.float16, 128, 64, True),
        ("sm_90", torch.float32, 128, 64, False),
        ("sm_90", torch.bfloat16, 64, 64, False),
        ("sm_90", torch.bfloat16, 128, 32, False),
        ("sm_100", torch.bfloat16, 128, 64, False),
    ],
)
@pytest.mark.parametrize("name", ["gla_intra", "kda_intra"])
def test_where_kernels_for_hopper_stand_in(name, device, io, K, C, own):
    pytest.importorskip("triton")
    stage, axes = find_stages()[name], dict(B=1, T=C, H=1, HV=1, K=K, V=K, C=C)
    [launcher] = stage.launchers
    [config] = launcher.configs(axes, device)
    [launch] = meta_launches(stage.contract, launcher, False, axes, io, "plain", config)
    assert launch.kernel.__name__ == (f"{name}_sm90_kernel" if own else "intra_kernel")
    assert set(launch.args) | set(launch.constexprs) == set(launch.kernel.arg_names)


@DTYPES
def test_n2_resets_of_single_channels(io):
    given = inputs(op("kda_core"), io, T=150, **LITTLE)
    for t in (0, 21, 25, 40, 64, 127):
        given["g"][:, t, :, t % 2 :: 2] = RESET
    check(op("kda_core"), given)


def test_n2_equals_the_two_parts_run_alone():
    an_op, at = op("kda_core"), 40
    given = inputs(an_op, T=100, absent=("initial_state",), **LITTLE)
    given["g"][:, at] = RESET
    whole = definition(an_op, given)
    parts = [definition(an_op, cut(an_op, given, *rows)) for rows in ((0, at), (at, 100))]
    assert torch.equal(whole["o"], torch.cat([each["o"] for each in parts], dim=1))
    assert torch.equal(whole["final_state"], parts[1]["final_state"])
    check(an_op, given)


@DTYPES
def test_n2_resets_by_the_gate_inside_the_op(io):
    """exp(80) softplus(-80) is 1; softplus(5) makes of it -2.8e35."""
    given = inputs(op("kda"), io, T=90, **LITTLE)
    given["A_log"], given["dt_bias"] = torch.full([2], 80.0), torch.zeros(2, 24)
    given["a"] = torch.full_like(given["a"], -80)
    given["a"][:, [0, 30], :, ::2] = 5
    check(op("kda"), given)


@pytest.mark.parametrize(
    "C,io", [(16, torch.bfloat16), (64, torch.float32), (64, torch.float16), (128, torch.bfloat16)], ids=str
)
def test_n9_log_decays_down_to_minus_20(C, io):
    given = inputs(op("kda_core", C), io, case="strong_gate", T=130, **LITTLE)
    given["g"][:, 30:60, :, ::3] = -20
    given["g"][:, :, :, 1::3] *= 1e-3
    check(op("kda_core", C), given, case="strong_gate", backward=True)


@pytest.mark.parametrize("value", [-300.0, -1e4, -3e38, -float("inf")])
def test_n15_decays_that_underflow(value):
    """Whole chunks, every second token and every third channel, with a decay that no float holds."""
    given = inputs(op("kda_core"), torch.bfloat16, T=130, absent=("initial_state",), **LITTLE)
    given["g"][:, 64:128] = value
    given["g"][:, 1:64:2, :, ::3] = value
    check(op("kda_core"), given, backward=True)


IDENTICAL = [
    (16, 0.99, 0.0, torch.float32), (16, 1.0, 0.0, torch.bfloat16), (16, 1.0, -1e-2, torch.float32),
    (64, 0.99, 0.0, torch.bfloat16), (64, 1.0, 0.0, torch.float32), (64, 1.0, -1e-2, torch.bfloat16),
    (130, 0.99, 0.0, torch.float32), (130, 1.0, -1e-2, torch.float32),
    (130, 1.0, 0.0, torch.float32), (130, 1.0, 0.0, torch.bfloat16),
]  # fmt: skip
"""Every pair of a length, a beta with a gate, and a dtype, and the hardest of all in both dtypes."""


@pytest.mark.parametrize("same,beta,gate,io", IDENTICAL, ids=str)
def test_n13_identical_tokens(same, beta, gate, io):
    """16, 64 and T equal tokens with unit keys, beta close to 1, no or a weak decay."""
    given = inputs(op("kda_core"), io, T=130, **LITTLE)
    for name in "qkv":
        given[name][:, 3 : 3 + same] = given[name][:, 3:4]
    given["beta"], given["g"] = torch.full_like(given["beta"], beta), torch.full_like(given["g"], gate)
    check(op("kda_core"), given, case="equal_keys")


def test_n10_causality():
    given = inputs(op("kda_core", 16), T=22, B=1)
    given["g"] = given["g"].clamp(min=-5)
    check_causality(op("kda_core", 16), given, "g", 21, -5.0)


def test_n10_causality_of_the_bounded_gate():
    """The pre-activation 1e4 makes a log decay of -5."""
    check_causality(op("kda_bounded"), inputs(op("kda_bounded"), T=22, B=1), "a", 21, 1e4)


@DTYPES
@pytest.mark.parametrize("name", ["kda", "kda_bounded"])
def test_n17_a_gate_of_inf_times_zero(name, io):
    """A_log = 100, pre-activation -200: the decay is 1, and gradients stay finite."""
    given = inputs(op(name), io, **LITTLE)
    given["a"], given["dt_bias"] = torch.full_like(given["a"], -200), torch.zeros(2, 24)
    given["A_log"] = torch.full([2], 100.0)
    decay = torch.exp(op(name).until("gate")(a=given["a"], A_log=given["A_log"], dt_bias=given["dt_bias"]).g)
    assert torch.equal(decay, torch.ones_like(decay))
    check(op(name), given)
    given["a"][:, 5, :, 0] = 0
    _, gradients = token_gradients(op(name), given, before(given, 60))
    assert all(x.isfinite().all() for x in gradients.values())


@pytest.mark.parametrize("bound", [-5.0, -0.5])
def test_the_bound_holds(bound):
    """Whatever the pre-activation; the param has its effect (L13)."""
    given = inputs(op("kda_bounded"), **LITTLE)
    given["a"] = 1e3 * given["a"]
    names = ("a", "A_log", "dt_bias")
    g = op("kda_bounded").until("gate")(**{name: given[name] for name in names}, bound=bound).g
    assert g.min() == bound and g.max() <= 0
    check(op("kda_bounded"), given, params={"bound": bound})


@pytest.mark.parametrize("io", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["kda", "kda_core"])
def test_s12_split_call(name, io):
    check_split(op(name), inputs(op(name), io, T=100), 37)


@pytest.mark.parametrize("name", ["kda", "kda_bounded"])
def test_n22_rows_of_zeros(name):
    """Padding: q, k exactly 0 give an output of exactly 0, and finite gradients."""
    given = inputs(op(name), torch.bfloat16, **LITTLE)
    for row in (0, 5, 33, 69):
        given["q"][:, row], given["k"][:, row] = 0, 0
    check(op(name), given, backward=True)
    assert not op(name)(**given).o[:, [0, 5, 33, 69]].any()
