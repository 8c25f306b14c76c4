"""fused_recurrent_*: fla's signatures for the one-token steps, against the chunked drop-ins and the definition."""

import inspect

import pytest
import torch
from support.ops import close, inputs, op, refusal, same_bits

from chunkwise import runner

CASES = {
    "gated_delta": (runner.fused_recurrent_gated_delta_rule, {}, {}),
    "gated_delta_l2norm": (runner.fused_recurrent_gated_delta_rule, {"use_qk_l2norm_in_kernel": True}, {}),
    "delta_rule": (runner.fused_recurrent_delta_rule, {}, {}),
    "delta_rule_l2norm": (runner.fused_recurrent_delta_rule, {"use_qk_l2norm_in_kernel": True}, {}),
    "simple_gla": (runner.fused_recurrent_simple_gla, {}, {}),
    "linear_attn": (runner.fused_recurrent_simple_gla, {}, {}),
    "gla": (runner.fused_recurrent_gla, {}, {"g": "gk"}),
    "kda_core": (runner.fused_recurrent_kda, {}, {}),
    "kda": (
        runner.fused_recurrent_kda,
        dict(use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True),
        {"a": "g", "b": "beta"},
    ),
    "retention": (runner.fused_recurrent_retention, {}, {"g_gamma": None}),
    "lightning": (runner.fused_recurrent_lightning_attn, {"layer_idx": 1, "num_layers": 4}, {"g_gamma": None}),
}
for_each = pytest.mark.parametrize("name", CASES)


def given(name, **sizes):
    found = inputs(op(name, mode="recurrent"), torch.bfloat16, **{**dict(B=2, T=5, H=2, HV=4, K=24, V=16), **sizes})
    if name == "lightning":
        found["g_gamma"] = runner.lightning_slopes(4, 1, 4)
    return found


def called(name, tensors, **keywords):
    function, flags, renamed = CASES[name]
    own = {renamed.get(port, port): x for port, x in tensors.items() if renamed.get(port, port)}
    return function(**own, **flags, **keywords)


@for_each
def test_it_is_the_op_in_its_recurrent_form(name):
    tensors = given(name)
    o, state = called(name, tensors, output_final_state=True)
    out = op(name, mode="recurrent")(**tensors)
    assert same_bits(o, out.o) and same_bits(state, out.final_state)
    assert called(name, tensors)[1] is None


@for_each
def test_it_is_within_budget_of_the_chunked_form(name):
    tensors = given(name, T=70)
    o, state = called(name, tensors, output_final_state=True)
    chunked = op(name)(**tensors)
    close(op(name), tensors, o, chunked, "o")
    close(op(name), tensors, state, chunked, "final_state")


@for_each
def test_states_v_first(name):
    tensors = given(name)
    o, state = called(name, tensors, output_final_state=True)
    turned = {**tensors, "initial_state": tensors["initial_state"].transpose(-1, -2)}
    other, across = called(name, turned, output_final_state=True, state_v_first=True)
    assert same_bits(o, other) and same_bits(state, across.transpose(-1, -2))


@for_each
def test_packed(name):
    lengths = (2, 0, 1, 4)
    tensors = inputs(op(name, mode="recurrent"), torch.bfloat16, seqlens=lengths, H=2, HV=4, K=24, V=16)
    if name == "lightning":
        tensors["g_gamma"] = runner.lightning_slopes(4, 1, 4)
    ends = torch.tensor([0, 2, 2, 3, 7], dtype=torch.int32)
    o, state = called(name, tensors, output_final_state=True, cu_seqlens=ends)
    out = op(name, mode="recurrent")(**tensors, seqlens=lengths)
    assert same_bits(o, out.o) and same_bits(state, out.final_state)


@for_each
def test_gradients_are_those_of_the_chunked_form(name):
    mine, others = given(name), given(name)
    for tensors in (mine, others):
        tensors["v"].requires_grad_()
    called(name, mine)[0].sum().backward()
    op(name)(**others).o.sum().backward()
    assert same_bits(mine["v"].grad, others["v"].grad)


def test_absent_strengths_are_one():
    tensors = given("gated_delta")
    tensors.pop("beta")
    ones = tensors["v"].new_ones(2, 5, 4)
    assert same_bits(called("gated_delta", tensors)[0], called("gated_delta", {**tensors, "beta": ones})[0])


REFUSED = {
    "gk": "fused_recurrent_gated_delta_rule does not support gk",
    "gv": "fused_recurrent_gated_delta_rule does not support gv",
    "use_gate_in_kernel": "fused_recurrent_gated_delta_rule does not support use_gate_in_kernel",
    "A_log": "fused_recurrent_gated_delta_rule does not support A_log",
    "dt_bias": "fused_recurrent_gated_delta_rule does not support dt_bias",
    "use_beta_sigmoid_in_kernel": "fused_recurrent_gated_delta_rule does not support use_beta_sigmoid_in_kernel",
    "allow_neg_eigval": "fused_recurrent_gated_delta_rule does not support allow_neg_eigval",
    "scales": "fused_recurrent_gated_delta_rule does not support scales",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    tensors = given("gated_delta")
    assert refusal(called, "gated_delta", {**tensors, name: True})[0].message == REFUSED[name]


FLA = {
    "fused_recurrent_gated_delta_rule": "q k v g gk gv beta scale initial_state output_final_state "
    "use_qk_l2norm_in_kernel use_gate_in_kernel A_log dt_bias use_beta_sigmoid_in_kernel allow_neg_eigval "
    "state_v_first cu_seqlens",
    "fused_recurrent_delta_rule": "q k v beta scale initial_state output_final_state use_qk_l2norm_in_kernel "
    "cu_seqlens",
    "fused_recurrent_simple_gla": "q k v g g_gamma scale initial_state output_final_state reverse state_v_first "
    "cu_seqlens",
    "fused_recurrent_gla": "q k v gk gv scale initial_state output_final_state reverse state_v_first cu_seqlens",
    "fused_recurrent_kda": "q k v g beta A_log dt_bias scale initial_state output_final_state use_qk_l2norm_in_kernel "
    "use_gate_in_kernel use_beta_sigmoid_in_kernel allow_neg_eigval lower_bound state_v_first cu_seqlens",
    "fused_recurrent_retention": "q k v scale initial_state output_final_state reverse state_v_first cu_seqlens",
    "fused_recurrent_lightning_attn": "q k v layer_idx num_layers scale initial_state output_final_state reverse "
    "cu_seqlens",
}
"""The positional parameters of fla-core 0.6.0, all of them."""


@pytest.mark.parametrize("name", FLA)
def test_positions_are_those_of_fla(name):
    mine = list(inspect.signature(getattr(runner, name)).parameters)
    assert mine[: len(FLA[name].split())] == FLA[name].split()


def test_two_decays_are_refused_by_the_name_that_was_called():
    g = torch.zeros(2, 5, 4)
    [found] = refusal(runner.fused_recurrent_simple_gla, **given("linear_attn"), g=g, g_gamma=torch.zeros(4))
    assert found.message == "fused_recurrent_simple_gla takes g or g_gamma, not both"
