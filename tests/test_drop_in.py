"""The drop-in functions: fla-core's signatures, real tensors from a Qwen3-Next layer, casts, layouts, refusals."""

import importlib.util
import inspect
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.ops import inputs, op, refusal, same_bits

from chunkwise.runner import chunk_delta_rule, chunk_gated_delta_rule, chunk_simple_gla
from chunkwise.runner.calling import drop_in
from chunkwise.runner.verification.budgets import arithmetic_noise, judge
from chunkwise.runner.verification.oracle import definition_gradients, definition_outputs
from chunkwise.runner.verification.staged import Subject, gate_span, models, staged_values

EXAMPLE = Path(__file__).parents[1] / "examples" / "qwen3_next"
CASES = {
    "gated_delta": (chunk_gated_delta_rule, {}),
    "gated_delta_l2norm": (chunk_gated_delta_rule, {"use_qk_l2norm_in_kernel": True}),
    "delta_rule": (chunk_delta_rule, {}),
    "delta_rule_l2norm": (chunk_delta_rule, {"use_qk_l2norm_in_kernel": True}),
    "simple_gla": (chunk_simple_gla, {}),
}
"""Pipeline -> the function that calls it, and how."""

for_each = pytest.mark.parametrize("name", CASES)


def call(name, given, **keywords):
    function, flags = CASES[name]
    return function(**given, **flags, **keywords)


@pytest.fixture(scope="module")
def captured():
    return load_file(EXAMPLE / "gdn_layer.safetensors")


def layer(captured, name):
    """(inputs, stored outputs and gradients, cotangents) of a pipeline from the captured tensors."""
    own = {"g": captured["gated_delta.g"], "beta": captured["gated_delta.beta"]}
    stored = {f"d_{each}": captured[f"gated_delta.expected.d_{each}"] for each in own}
    prefix = "gated_delta." if name == "gated_delta" else ""
    for each in "qkv":
        own[each] = captured[f"{prefix}{each}"]
        stored[f"d_{each}"] = captured["expected.d_v" if each == "v" else f"{prefix}expected.d_{each}"]
    outputs = {each: captured[f"expected.{each}"] for each in ("o", "final_state")}
    return own, {**outputs, **stored}, {each: captured[f"cotangent.{each}"] for each in outputs}


def judged(name, given, cotangents):
    """tensor name, tensor -> verdict, from the definition and the rounding model on these inputs."""
    bound = op(name).bind(given)
    joint = bound.joint(given, cotangents)
    incoming = {joint.cotangents[each]: x for each, x in cotangents.items()}
    subject = Subject(bound, joint, (), bound.contiguous, incoming)
    truth = definition_outputs(joint, given, bound.params, bound.sizes, None)
    gradients = definition_gradients(joint, given, cotangents, bound.params, bound.sizes, None)
    truth |= {f"d_{each}": x for each, x in gradients.items()}
    values = dict(bound.wanted) | {f"d_{each}": value for each, value in joint.gradients.items()}

    def chain(rounding):
        found = staged_values(subject, torch.float32, rounding)
        return {each: found[value] for each, value in values.items()}

    model = models(chain, truth, few_roundings=True)
    noise = arithmetic_noise(bound.io, bound.sizes, gate_span(joint, staged_values(subject, torch.float64)))

    def verdict(each, got):
        axes = joint.values[values[each]].axes
        return judge(got, truth[each], model[each], axes, bound.seqs, bound.io, noise)

    return verdict


@pytest.mark.parametrize("name", ["gated_delta", "gated_delta_l2norm"])
def test_real_tensors(captured, name):
    """Ours and what transformers gave stay within one budget of the float64 definition, gradients too."""
    given, stored, cotangents = layer(captured, name)
    leaves = {each: x.clone().requires_grad_() for each, x in given.items()}
    outputs = dict(zip(("o", "final_state"), call(name, leaves, output_final_state=True)))
    torch.autograd.backward(list(outputs.values()), list(cotangents.values()))
    got = {**outputs, **{f"d_{each}": x.grad for each, x in leaves.items()}}
    verdict = judged(name, given, cotangents)
    assert got.keys() == stored.keys()
    for side in (got, stored):
        found = {each: verdict(each, x) for each, x in side.items()}
        assert {each: it.why for each, it in found.items() if not it.ok} == {}


SIGNATURES = {
    chunk_gated_delta_rule: (
        "q k v g beta scale initial_state output_final_state use_qk_l2norm_in_kernel use_beta_sigmoid_in_kernel "
        "allow_neg_eigval state_v_first cu_seqlens cu_seqlens_cpu chunk_indices cp_context"
    ),
    chunk_simple_gla: "q k v g g_gamma scale initial_state output_final_state state_v_first cu_seqlens cu_seqlens_cpu",
    chunk_delta_rule: (
        "q k v beta scale initial_state output_final_state use_qk_l2norm_in_kernel cu_seqlens cu_seqlens_cpu"
    ),
}
"""fla-core 0.6.0's parameters, in its order."""


@pytest.mark.parametrize("function, names", SIGNATURES.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_parameters_stand_where_callers_expect_them(function, names):
    parameters = inspect.signature(function).parameters.values()
    assert " ".join(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD) == names
    optional = {p.name: p.default for p in parameters if p.default is not p.empty}
    assert {n for n, default in optional.items() if default not in (None, False)} == {"chunk_size"}


@for_each
@pytest.mark.parametrize("io", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_equals_the_op(name, io):
    given = inputs(op(name), io)
    o, state = call(name, given, output_final_state=True)
    out = op(name)(**given)
    assert same_bits(o, out.o) and same_bits(state, out.final_state)


@for_each
def test_mixed_dtypes_are_cast(name):
    """And gradients come back in the dtypes that the tensors have."""
    given = inputs(op(name), torch.bfloat16)
    mixed = {n: x.float() if n in "vbeta" else x.half() if n in ("g", "initial_state") else x for n, x in given.items()}
    mixed = {n: x.requires_grad_() for n, x in mixed.items()}
    o, state = call(name, mixed, output_final_state=True)
    out = op(name)(**{n: x.detach().to(given[n].dtype) for n, x in mixed.items()})
    assert same_bits(o.detach(), out.o) and same_bits(state.detach(), out.final_state)
    assert (o.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    (o.float().square().sum() + state.square().sum()).backward()
    assert all(x.grad.dtype == x.dtype and x.grad.isfinite().all() and x.grad.any() for x in mixed.values())


@for_each
def test_state_v_first(name):
    """K and V differ, so a state that was not turned over would not fit."""
    given = inputs(op(name))
    leaves = [given["initial_state"].clone().requires_grad_(), given["initial_state"].mT.contiguous().requires_grad_()]
    o, state = call(name, {**given, "initial_state": leaves[0]}, output_final_state=True)
    o_v, state_v = call(name, {**given, "initial_state": leaves[1]}, output_final_state=True, state_v_first=True)
    assert state_v.is_contiguous() and same_bits(o, o_v) and same_bits(state.mT.contiguous(), state_v)
    (o.sum() + state.square().sum()).backward()
    (o_v.sum() + state_v.square().sum()).backward()
    assert same_bits(leaves[0].grad.mT, leaves[1].grad)


@for_each
def test_a_final_state_that_nobody_asked_for_is_not_computed(name, monkeypatch):
    monkeypatch.setattr(drop_in, "_ops", {})
    given = inputs(op(name))
    o, state = call(name, {**given, "q": given["q"].clone().requires_grad_()})
    assert state is None and o.grad_fn is not None
    (found,) = drop_in._ops.values()
    plans = found.plans.items.values()
    scans = [step for plan in plans for step in plan.steps if "final_state" in step.outputs]
    assert scans and all(step.outputs["final_state"] is None for step in scans)


@for_each
def test_arguments_have_their_effect(name):
    given = inputs(op(name), torch.float64, T=33)
    scaled, chunked = call(name, given, scale=0.5)[0], call(name, given, chunk_size=16)[0]
    assert same_bits(scaled, op(name)(**given, scale=0.5).o) and same_bits(chunked, op(name, 16)(**given).o)
    assert not torch.allclose(scaled, call(name, given)[0])


@for_each
def test_packed_sequences(name):
    lengths, ends = (0, 33, 1, 30), torch.tensor([0, 0, 33, 34, 64])
    given = inputs(op(name), seqlens=lengths)
    want = call(name, given, cu_seqlens=ends, output_final_state=True)
    ways = [dict(cu_seqlens_cpu=ends), dict(cu_seqlens=ends.int(), cu_seqlens_cpu=ends)]
    for way in ways:
        got = call(name, given, output_final_state=True, **way)
        assert same_bits(got[0], want[0]) and same_bits(got[1], want[1])
    alone = {n: x[1:2] if n == "initial_state" else x[:, :33] for n, x in given.items()}
    o, state = call(name, alone, output_final_state=True)
    torch.testing.assert_close((want[0][:, :33], want[1][1:2]), (o, state), rtol=1e-5, atol=1e-5)


def test_decay_of_simple_gla():
    """g_gamma is g at every token; with neither nothing decays."""
    given = inputs(op("simple_gla"), initial_state=None)
    given.pop("g")
    slopes = torch.tensor([-0.1, -0.2, -0.3, -0.4], requires_grad=True)
    o, _ = chunk_simple_gla(**given, g_gamma=slopes)
    g = slopes.detach().expand(2, 70, 4).contiguous().requires_grad_()
    o_g, _ = chunk_simple_gla(**given, g=g)
    assert same_bits(o, o_g)
    o.square().sum().backward()
    o_g.square().sum().backward()
    torch.testing.assert_close(slopes.grad, g.grad.sum((0, 1)))
    assert same_bits(chunk_simple_gla(**given)[0], chunk_simple_gla(**given, g_gamma=slopes * 0)[0])


REFUSALS = [
    (chunk_gated_delta_rule, {"head_first": True}, "head_first"),
    (chunk_gated_delta_rule, {"transpose_state_layout": True}, "transpose_state_layout"),
    (chunk_gated_delta_rule, {"use_gate_in_kernel": True}, "use_gate_in_kernel"),
    (chunk_gated_delta_rule, {"A_log": torch.zeros(4)}, "A_log"),
    (chunk_gated_delta_rule, {"use_beta_sigmoid_in_kernel": True}, "use_beta_sigmoid_in_kernel"),
    (chunk_gated_delta_rule, {"allow_neg_eigval": True}, "allow_neg_eigval"),
    (chunk_gated_delta_rule, {"chunk_indices": torch.zeros(2, 2)}, "chunk_indices"),
    (chunk_gated_delta_rule, {"cp_context": object()}, "cp_context"),
    (chunk_gated_delta_rule, {"anything": None}, "anything"),
    (chunk_gated_delta_rule, {"g": None}, "chunk_gated_delta_rule needs g"),
    (chunk_delta_rule, {"g": torch.zeros(2, 70, 4)}, "support g"),
    (chunk_delta_rule, {"head_first": True}, "head_first"),
    (chunk_simple_gla, {"head_first": True}, "head_first"),
    (chunk_simple_gla, {"g": torch.zeros(2, 70, 4), "g_gamma": torch.zeros(4)}, "chunk_simple_gla takes g or g_gamma"),
    (chunk_simple_gla, {"g_gamma": torch.zeros(3)}, "g_gamma"),
    (chunk_simple_gla, {"g_gamma": torch.zeros(4), "v": [1.0]}, "v must be"),
    (chunk_delta_rule, {"chunk_size": 40}, "chunk_size"),
    (chunk_delta_rule, {"chunk_size": 64.0}, "chunk_size"),
    (chunk_delta_rule, {"q": [1.0]}, "q "),
    (chunk_delta_rule, {"scale": "big"}, "scale"),
    (chunk_delta_rule, {"initial_state": torch.zeros(2, 4, 80, 48)}, "initial_state"),
    (chunk_delta_rule, {"cu_seqlens_cpu": torch.zeros(2, dtype=torch.long, device="meta")}, "cu_seqlens_cpu"),
    (chunk_delta_rule, {"cu_seqlens_cpu": [0, 70]}, "cu_seqlens_cpu must be a tensor"),
    (chunk_delta_rule, {"cu_seqlens_cpu": torch.tensor([0.0, 70.0])}, "cu_seqlens_cpu must be int32"),
    (chunk_delta_rule, {"cu_seqlens_cpu": torch.tensor([1, 2])}, "cu_seqlens_cpu must start at 0"),
    (chunk_delta_rule, {"cu_seqlens_cpu": torch.tensor([0, 5, 3])}, "cu_seqlens_cpu must not decrease"),
]


@pytest.mark.parametrize("function, wrong, named", REFUSALS, ids=[f"{f.__name__}-{n}" for f, _, n in REFUSALS])
def test_what_has_no_effect_is_refused_by_name(function, wrong, named):
    name = next(each for each, (known, _) in CASES.items() if known is function)
    given = inputs(op(name))
    del given["initial_state"]
    if function is chunk_simple_gla:
        del given["g"]
    assert named in refusal(function, **{**given, **wrong})[0].message


def test_switches_that_are_off_ask_for_nothing():
    given = inputs(op("gated_delta"))
    chunk_gated_delta_rule(**given, head_first=False, use_gate_in_kernel=False, A_log=None)


def test_every_refusal_is_shown_at_once():
    given = inputs(op("gated_delta"))
    found = refusal(chunk_gated_delta_rule, **given, head_first=True, scal=1.0)
    assert [each.message.split()[-1] for each in found] == ["head_first", "scal"]
    assert found[1].help == "did you mean scale?"


def test_ops_are_loaded_once_by_many_threads(monkeypatch):
    seen = []
    monkeypatch.setattr(drop_in, "_ops", {})
    monkeypatch.setattr(drop_in, "load", lambda pipeline, mode: seen.append(pipeline) or op(pipeline, mode=mode))
    given = inputs(op("delta_rule"), T=5, B=1)
    with ThreadPoolExecutor(8) as pool:
        results = [each.result() for each in [pool.submit(chunk_delta_rule, **given) for _ in range(16)]]
    assert seen == ["delta_rule"] and all(same_bits(o, results[0][0]) for o, _ in results)


@pytest.mark.gpu
@for_each
def test_on_a_gpu(name):
    given = inputs(op(name), torch.bfloat16, device="cuda")
    leaves = {n: x.clone().requires_grad_() for n, x in given.items()}
    o, state = call(name, leaves, output_final_state=True)
    out = op(name, backend="triton")(**given)
    assert same_bits(o.detach(), out.o) and same_bits(state.detach(), out.final_state)
    (o.float().sum() + state.sum()).backward()
    assert all(x.grad.isfinite().all() for x in leaves.values())


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="transformers is not installed")
def test_training_qwen3_next():
    """The extra ``test`` does not bring transformers: some sixty packages, for this example alone."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(EXAMPLE / "train.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same, within budget" in done.stdout


def test_a_state_in_the_other_layout_is_refused_in_the_callers():
    q, v = torch.ones(1, 3, 2, 8), torch.ones(1, 3, 2, 6)
    (error,) = refusal(
        chunk_simple_gla, q, q, v, g=-torch.ones(1, 3, 2), initial_state=torch.zeros(1, 2, 8, 6), state_v_first=True
    )
    wanted = "with state_v_first, initial_state must be [N, HV, V = 6, K = 8], it has the shape [1, 2, 8, 6]"
    assert error.message == wanted
