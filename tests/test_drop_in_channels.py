"""chunk_gla and chunk_kda: fla-core's signatures, every way to compute things in the kernel, refusals."""

import inspect
from itertools import product

import pytest
import torch
from support.ops import RAGGED, inputs, op, refusal, same_bits

from chunkwise.runner import chunk_gla, chunk_kda

SIZES = dict(B=2, T=21, H=1, HV=2, K=8, V=6)
SIGNATURES = {
    chunk_gla: "q k v g scale initial_state output_final_state state_v_first cu_seqlens cu_seqlens_cpu",
    chunk_kda: (
        "q k v g beta scale initial_state output_final_state use_qk_l2norm_in_kernel use_gate_in_kernel "
        "use_beta_sigmoid_in_kernel allow_neg_eigval safe_gate lower_bound disable_recompute "
        "return_intermediate_states state_v_first cu_seqlens cu_seqlens_cpu cp_context use_graph max_num_seqs"
    ),
}
"""fla-core 0.6.0's parameters, in its order."""


@pytest.mark.parametrize("function, names", SIGNATURES.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_parameters_stand_where_callers_expect_them(function, names):
    parameters = inspect.signature(function).parameters.values()
    assert " ".join(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD) == names
    optional = {p.name: p.default for p in parameters if p.default is not p.empty}
    assert {n for n, default in optional.items() if default not in (None, False)} == {"chunk_size"}


def recurrence(q, k, v, g, beta, scale, state):
    """(o, final state) token by token; beta None: no delta rule."""
    group, outputs = v.shape[2] // q.shape[2], []
    q, k = (x.repeat_interleave(group, dim=2) for x in (q, k))
    for t in range(v.shape[1]):
        state = torch.exp(g[:, t])[..., None] * state
        write = v[:, t]
        if beta is not None:
            write = beta[:, t, :, None] * (write - (k[:, t, :, :, None] * state).sum(-2))
        state = state + k[:, t, :, :, None] * write[:, :, None]
        outputs.append(scale * (q[:, t, :, :, None] * state).sum(-2))
    return torch.stack(outputs, dim=1), state


def check_gradients(outputs, expected, leaves):
    """The same outputs, and the same gradients of a loss on both."""
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    found, wanted = (
        torch.autograd.grad(o.sin().sum() + state.square().sum(), leaves) for o, state in (outputs, expected)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


def test_chunk_gla_is_the_recurrence():
    given = {name: x.requires_grad_() for name, x in inputs(op("gla"), torch.float64, **SIZES).items()}
    found = chunk_gla(**given, output_final_state=True, chunk_size=16)
    expected = recurrence(*(given[name] for name in "qkvg"), None, 8**-0.5, given["initial_state"])
    check_gradients(found, expected, list(given.values()))


GATES = {
    "given": {},
    "softplus": dict(use_gate_in_kernel=True, A_log="A_log", dt_bias="dt_bias"),
    "softplus, no bias": dict(use_gate_in_kernel=True, A_log="A_log"),
    "bounded": dict(use_gate_in_kernel=True, safe_gate=True, lower_bound=-5, A_log="A_log", dt_bias="dt_bias"),
    "bounded, no A_log": dict(use_gate_in_kernel=True, lower_bound=-3.5),
}


def plain_gate(g, A_log=None, dt_bias=None, lower_bound=None, use_gate_in_kernel=False, **others):
    """The log decay that such arguments mean."""
    if not use_gate_in_kernel:
        return g
    bias = 0 if dt_bias is None else dt_bias.view(g.shape[2:])
    rate = torch.ones(g.shape[2], 1, dtype=g.dtype) if A_log is None else torch.exp(A_log)[:, None]
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(rate * (g + bias))
    return -rate * torch.nn.functional.softplus(g + bias)


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize("normed,sigmoid", list(product([False, True], repeat=2)), ids=str)
@pytest.mark.parametrize("how", GATES)
def test_chunk_kda_is_the_recurrence(how, normed, sigmoid):
    """Whatever it is told to compute in its kernels, with the gradients of what goes in."""
    raw = inputs(op("kda"), torch.float64, **SIZES)
    raw["dt_bias"] = raw["dt_bias"].flatten()
    if not normed:
        raw |= {name: unit(raw[name]) for name in "qk"}
    if not sigmoid:
        raw["b"] = raw["b"].sigmoid()
    if how == "given":
        raw["a"] = -torch.nn.functional.softplus(raw["a"])
    raw = {name: x.requires_grad_() for name, x in raw.items()}
    flags = {name: raw[value] if isinstance(value, str) else value for name, value in GATES[how].items()}
    q, k, v, a, b, state = (raw[name] for name in ("q", "k", "v", "a", "b", "initial_state"))
    found = chunk_kda(
        q, k, v, a, b, None, state, True, normed, use_beta_sigmoid_in_kernel=sigmoid, chunk_size=16, **flags
    )
    keys = [unit(x) if normed else x for x in (q, k)]
    expected = recurrence(*keys, v, plain_gate(a, **flags), b.sigmoid() if sigmoid else b, 8**-0.5, state)
    constants = [raw[value] for value in GATES[how].values() if isinstance(value, str)]
    check_gradients(found, expected, [q, k, v, a, b, state, *constants])


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
def test_equals_the_op(io):
    """Packed, V-first, with mixed dtypes; where everything is in the kernel it is kda itself."""
    ends = torch.tensor([0, *RAGGED]).cumsum(0)
    given = inputs(op("gla", 32), io, seqlens=RAGGED)
    out = op("gla", 32)(**given, scale=0.5, cu_seqlens=ends)
    given["initial_state"] = given["initial_state"].mT
    found = chunk_gla(**given, scale=0.5, output_final_state=True, state_v_first=True, cu_seqlens=ends, chunk_size=32)
    assert same_bits(found[0], out.o) and same_bits(found[1].mT.contiguous(), out.final_state)
    given = inputs(op("kda", 32), io, seqlens=RAGGED)
    out = op("kda", 32)(**given, cu_seqlens=ends)
    flags = ("use_qk_l2norm_in_kernel", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel", "output_final_state")
    names = {"a": "g", "b": "beta"}
    given = {names.get(name, name): x.double() if name == "v" else x for name, x in given.items()}
    found = chunk_kda(**given, **dict.fromkeys(flags, True), cu_seqlens_cpu=ends, chunk_size=32)
    assert same_bits(found[0], out.o) and same_bits(found[1], out.final_state)
    assert chunk_kda(**given, **dict.fromkeys(flags[:3], True), cu_seqlens_cpu=ends)[1] is None


def test_inside_compiled_code():
    given = inputs(op("kda"), **SIZES)
    given = dict(q=given["q"], k=given["k"], v=given["v"], g=-given["a"].abs(), beta=given["b"].sigmoid())
    torch._dynamo.reset()
    compiled = torch.compile(chunk_kda, fullgraph=True, backend="aot_eager")
    assert same_bits(compiled(**given)[0], chunk_kda(**given)[0])


IN_KERNEL = {"use_gate_in_kernel": True, "A_log": torch.zeros(2)}
REFUSALS = [
    (chunk_gla, {"head_first": True}, "head_first"),
    (chunk_gla, {"g_gamma": torch.zeros(2)}, "g_gamma"),
    (chunk_gla, {"q": [1.0]}, "q "),
    (chunk_gla, {"g": torch.zeros(2, 21, 2)}, "g "),
    (chunk_gla, {"chunk_size": 40}, "chunk_size"),
    (chunk_kda, {"allow_neg_eigval": True}, "allow_neg_eigval"),
    (chunk_kda, {"disable_recompute": True}, "disable_recompute"),
    (chunk_kda, {"return_intermediate_states": True}, "return_intermediate_states"),
    (chunk_kda, {"use_graph": True}, "use_graph"),
    (chunk_kda, {"max_num_seqs": 4}, "max_num_seqs"),
    (chunk_kda, {"cp_context": object()}, "cp_context"),
    (chunk_kda, {"transpose_state_layout": True}, "transpose_state_layout"),
    (chunk_kda, {"anything": 1}, "anything"),
    (chunk_kda, {"A_log": torch.zeros(2)}, "A_log has an effect only"),
    (chunk_kda, {"dt_bias": torch.zeros(16)}, "dt_bias has an effect only"),
    (chunk_kda, {"lower_bound": -5.0}, "lower_bound has an effect only"),
    (chunk_kda, {"safe_gate": True}, "safe_gate has an effect only"),
    (chunk_kda, {"use_gate_in_kernel": True}, "needs A_log"),
    (chunk_kda, {**IN_KERNEL, "safe_gate": True}, "safe_gate needs a lower_bound"),
    (chunk_kda, {**IN_KERNEL, "lower_bound": -6.0}, "lower_bound must lie"),
    (chunk_kda, {**IN_KERNEL, "lower_bound": 0.0}, "lower_bound must lie"),
    (chunk_kda, {**IN_KERNEL, "dt_bias": torch.zeros(15)}, "dt_bias must be"),
    (chunk_kda, {**IN_KERNEL, "g": [1.0]}, "g must be"),
    (chunk_kda, {"q": [1.0]}, "q "),
    (chunk_kda, {"beta": torch.zeros(2, 21)}, "beta "),
]


@pytest.mark.parametrize("function, wrong, named", REFUSALS, ids=[f"{f.__name__}-{n}" for f, _, n in REFUSALS])
def test_what_has_no_effect_is_refused_by_name(function, wrong, named):
    raw = inputs(op("kda"), **SIZES)
    given = dict(q=raw["q"], k=raw["k"], v=raw["v"], g=-raw["a"].abs())
    given |= {"beta": raw["b"].sigmoid()} if function is chunk_kda else {}
    function(**given)
    assert named in refusal(function, **{**given, **wrong})[0].message


def test_given_in_place_of_a_stage():
    """The op begins later: its new input has the type of what the stage made, and the stage's own inputs are gone."""
    an_op = op("kda").given({"gate": "g", "beta": "strength"})
    assert {"a", "b", "A_log", "dt_bias"}.isdisjoint(an_op.spec.inputs)
    value = an_op.whole.inputs["g"]
    assert (value.unit, value.dtype, [law.text for law in value.laws]) == ("log_decay/ln/token", "f32", ["<= 0"])
    raw = inputs(op("kda"), **SIZES)
    made = op("kda").until("gate")(**{name: raw[name] for name in ("a", "A_log", "dt_bias")})
    rest = {name: raw[name] for name in ("q", "k", "v", "initial_state")}
    found = an_op(**rest, g=made.g, strength=raw["b"].sigmoid())
    torch.testing.assert_close(found.o, op("kda")(**raw).o)


@pytest.mark.parametrize("name, other", [("g", "nested"), ("g", "sparse"), ("dt_bias", "nested")])
def test_a_gate_that_is_no_dense_tensor_is_refused_by_name(name, other):
    given = dict(g=torch.ones(2, 3, 1, 8), A_log=torch.zeros(1), dt_bias=torch.zeros(1, 8))
    wrong = given[name].to_sparse() if other == "sparse" else torch.nested.nested_tensor(list(given[name]))
    q, beta = torch.ones(2, 3, 1, 8), torch.ones(2, 3, 1)
    (error,) = refusal(chunk_kda, q, q, q, beta=beta, use_gate_in_kernel=True, **given | {name: wrong})
    wanted = {"g": "a dense tensor [B, T, HV, K], it is no dense one"}
    wanted |= {"dt_bias": "a tensor [8] or [1, 8], it is Tensor"}
    assert error.message == f"{name} must be {wanted[name]}"
