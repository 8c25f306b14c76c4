"""Definitions evaluated token by token, against the same recurrences written directly in torch."""

import math
import time

import pytest
import torch
from torch.nn.functional import elu, softplus

from chunkwise.runner.definition import DefinitionError, Line, evaluate, parse_definition, typecheck

SIZES = {"B": 2, "T": 9, "H": 2, "HV": 4, "G": 2, "K": 3, "V": 5, "D": 4, "DI": 6, "NS": 3, "P": 5}
GATED = {
    "q": "B T H K", "k": "B T H K", "v": "B T HV V", "g": "B T HV", "beta": "B T HV", "initial_state": "N HV K V",
}  # fmt: skip
STEPS = {
    "gated_delta": ["S = exp(g) * S", "S = S + outer(k, beta * (v - k @ S))", "o = scale * (q @ S)"],
    "simple_gla": ["S = exp(g) * S", "S = S + outer(k, v)", "o = scale * (q @ S)"],
    "delta_rule": ["S = S + outer(k, beta * (v - k @ S))", "o = scale * (q @ S)"],
    "gla": ["S = diag(exp(g)) @ S", "S = S + outer(k, v)", "o = scale * (q @ S)"],
    "kda": ["S = diag(exp(g)) @ S", "S = S + outer(k, beta * (v - k @ S))", "o = scale * (q @ S)"],
}


def define(step, state=None, final=None, let=()):
    return parse_definition(
        {
            "state": {name: Line(text) for name, text in (state or {}).items()},
            "let": [Line(text) for text in let],
            "step": [Line(text) for text in step],
            "final": {name: Line(text) for name, text in (final or {}).items()},
        }
    )


def matrix_state(step, let=()):
    return define(step, {"S": "initial_state"}, {"final_state": "S"}, let)


def axes_of(shapes):
    return {name: tuple(shape.split()) for name, shape in shapes.items()}


def draw(shapes, seed=0, **sizes):
    """Gates g <= 0, beta in 0..1, the rest normal."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {**SIZES, **sizes}
    sizes.setdefault("N", sizes["B"])
    found = {}
    for name, shape in shapes.items():
        x = torch.randn([sizes[axis] for axis in shape.split()], generator=generator, dtype=torch.float64)
        found[name] = -x.abs() if name == "g" else x.sigmoid() if name in ("beta", "dt") else x
    return found


def run(definition, inputs, shapes, outputs=("o", "final_state"), optional=(), **options):
    options.setdefault("params", {"scale": 0.5})
    declared = axes_of(shapes)
    typecheck(definition, declared, params=options["params"], optional=optional)
    return evaluate(definition, inputs, declared=declared, outputs=outputs, **options)


def heads_repeated(x, HV, dim=2):
    return x.repeat_interleave(HV // x.shape[dim], dim=dim)


def direct(inputs, decay=None, delta=False, scale=0.5, state=None):
    """o, final state of the linear family. decay: None, "head" or "channel"."""
    B, T, HV, V = inputs["v"].shape
    q, k = heads_repeated(inputs["q"], HV), heads_repeated(inputs["k"], HV)
    S = inputs["initial_state"] if state is None else state
    out = []
    for t in range(T):
        if decay == "head":
            S = S * inputs["g"][:, t, :, None, None].exp()
        if decay == "channel":
            S = S * inputs["g"][:, t, :, :, None].exp()
        write = inputs["v"][:, t]
        if delta:
            write = (write - torch.einsum("bhk,bhkv->bhv", k[:, t], S)) * inputs["beta"][:, t, :, None]
        S = S + torch.einsum("bhk,bhv->bhkv", k[:, t], write)
        out.append(scale * torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    return {"o": torch.stack(out, 1) if out else inputs["v"], "final_state": S}


def close(got, want):
    assert got.dtype == torch.float64
    assert got.shape == want.shape
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "decay", "delta"),
    [
        ("gated_delta", "head", True), ("simple_gla", "head", False), ("delta_rule", None, True),
        ("gla", "channel", False), ("kda", "channel", True),
    ],
)  # fmt: skip
def test_linear_family(name, decay, delta):
    shapes = GATED | ({"g": "B T HV K"} if decay == "channel" else {})
    inputs = draw(shapes)
    got = run(matrix_state(STEPS[name]), inputs, shapes)
    want = direct(inputs, decay, delta)
    close(got["o"], want["o"])
    close(got["final_state"], want["final_state"])


MAMBA2 = {
    "x": "B T H P", "dt": "B T H", "b": "B T G NS", "c": "B T G NS", "A_log": "H", "dt_bias": "H", "d_skip": "H",
    "initial_state": "N H NS P",
}  # fmt: skip
MAMBA2_STEP = [
    "d = softplus(dt + dt_bias)", "S = exp(-d * exp(A_log)) * S", "S = S + outer(b, d * x)",
    "o = c @ S + d_skip * x",
]  # fmt: skip


def test_mamba2_with_groups_and_constants():
    inputs = draw(MAMBA2, H=4)
    got = run(matrix_state(MAMBA2_STEP), inputs, MAMBA2)
    b, c = heads_repeated(inputs["b"], 4), heads_repeated(inputs["c"], 4)
    S, out = inputs["initial_state"], []
    for t in range(SIZES["T"]):
        d = softplus(inputs["dt"][:, t] + inputs["dt_bias"])
        S = (-d * inputs["A_log"].exp()).exp()[..., None, None] * S
        S = S + b[:, t, :, :, None] * (d[..., None] * inputs["x"][:, t])[:, :, None]
        y = (c[:, t, :, :, None] * S).sum(2)
        out.append(y + inputs["d_skip"][:, None] * inputs["x"][:, t])
    close(got["o"], torch.stack(out, 1))
    close(got["final_state"], S)


def test_lightning_step():
    shapes = {"q": "B H K", "k": "B H K", "v": "B H V", "initial_state": "N H K V"}
    step = ["S = S + outer(elu(k) + 1, v)", "y = (elu(q) + 1) @ S", "o = y / (norm(y + eps, axis=V) + eps)"]
    inputs = draw(shapes)
    got = run(matrix_state(step), inputs, shapes, params={"eps": 1e-6})
    S = inputs["initial_state"] + (elu(inputs["k"]) + 1)[..., None] * inputs["v"][..., None, :]
    y = ((elu(inputs["q"]) + 1)[..., None] * S).sum(-2)
    close(got["o"], y / ((y + 1e-6).norm(dim=-1, keepdim=True) + 1e-6))
    close(got["final_state"], S)


def test_kda_step_with_a_square_state():
    shapes = {**dict.fromkeys(("q", "k", "v", "alpha", "beta"), "B H D"), "initial_state": "B H D D"}
    step = ["S = S - diag(beta) @ (outer(v, k) @ S) + diag(alpha) @ outer(v, k)", "o = q @ S"]
    inputs = draw(shapes)
    got = run(matrix_state(step), inputs, shapes)
    S, vk = inputs["initial_state"], inputs["v"][..., :, None] * inputs["k"][..., None, :]
    S = S - inputs["beta"][..., None] * (vk @ S) + inputs["alpha"][..., None] * vk
    close(got["o"], (inputs["q"][..., None] * S).sum(-2))
    close(got["final_state"], S)


def test_mamba2_step_without_heads():
    shapes = {"x": "B DI", "dt": "B DI", "b": "B NS", "c": "B NS", "A_log": "DI NS", "initial_state": "B DI NS"}
    step = ["h = exp(outer(dt, ones(NS)) * a) * h", "h = h + outer(dt * x, b)", "y = h @ c"]
    inputs = draw(shapes)
    definition = define(step, {"h": "initial_state"}, {"final_state": "h"}, ["a = -exp(A_log)"])
    got = run(definition, inputs, shapes, outputs=("y", "final_state"))
    h = (inputs["dt"][..., None] * -inputs["A_log"].exp()).exp() * inputs["initial_state"]
    h = h + (inputs["dt"] * inputs["x"])[..., None] * inputs["b"][:, None]
    close(got["y"], (h * inputs["c"][:, None]).sum(-1))
    close(got["final_state"], h)


@pytest.mark.parametrize("lengths", [[9], [4, 0, 1, 3], [0, 5, 2], [1, 1, 1, 0], [0, 0], [2, 3, 3, 0]])
def test_packed_sequences_equal_each_alone(lengths):
    N, definition = len(lengths), matrix_state(STEPS["gated_delta"])
    inputs = draw(GATED, B=1, N=N)
    end = sum(lengths)
    for name in set(GATED) - {"initial_state"}:
        inputs[name][:, end:] = math.nan
    got = run(definition, inputs, GATED, lengths=lengths)
    start = 0
    for n, length in enumerate(lengths):
        alone = {name: x[:, start : start + length] for name, x in inputs.items() if name != "initial_state"}
        want = direct(alone, "head", True, state=inputs["initial_state"][n : n + 1])
        close(got["final_state"][n : n + 1], want["final_state"])
        if length:
            close(got["o"][:, start : start + length], want["o"])
        start += length
    assert (got["o"][:, end:] == 0).all()


def test_packed_gradients_stop_at_the_end():
    inputs = draw(GATED, B=1, N=3)
    lengths = [3, 0, 4]
    for name in set(GATED) - {"initial_state"}:
        inputs[name][:, 7:] = math.nan
    leaves = {name: x.requires_grad_() for name, x in inputs.items()}
    got = run(matrix_state(STEPS["gated_delta"]), leaves, GATED, lengths=lengths)
    (got["o"].sum() + got["final_state"].sum()).backward()
    for name in set(GATED) - {"initial_state"}:
        assert (leaves[name].grad[:, 7:] == 0).all(), name
        assert torch.isfinite(leaves[name].grad).all(), name
    assert (leaves["initial_state"].grad[1] == 1).all()


@pytest.mark.parametrize("segment", [None, 1, 4, 100])
def test_gradients(segment):
    inputs = {name: x.requires_grad_() for name, x in draw(GATED).items()}
    weights = draw({"o": "B T HV V", "final_state": "N HV K V"}, seed=1)

    def gradients(outputs):
        loss = sum((outputs[name] * weights[name]).sum() for name in weights)
        return dict(zip(inputs, torch.autograd.grad(loss, inputs.values()), strict=True))

    got = gradients(run(matrix_state(STEPS["gated_delta"]), inputs, GATED, segment=segment))
    want = gradients(direct(inputs, "head", True))
    for name in inputs:
        torch.testing.assert_close(got[name], want[name], rtol=1e-11, atol=1e-11)


def test_segments_bound_what_autograd_keeps():
    inputs = {name: x.requires_grad_() for name, x in draw(GATED, T=64, K=16, V=16).items()}

    def kept(segment):
        bytes_kept = 0

        def pack(x):
            nonlocal bytes_kept
            bytes_kept += x.numel() * 8
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            run(matrix_state(STEPS["gated_delta"]), inputs, GATED, segment=segment)
        return bytes_kept

    assert kept(8) < kept(None) / 4


def test_several_states_with_initialisers():
    shapes = {"q": "B T H K", "k": "B T H K", "v": "B T H V"}
    definition = define(
        ["S = S + outer(k, v)", "z = z + k", "n = n + 1", "o = (q @ S) / (q @ z + n)"],
        {"S": "zeros(K, V)", "z": "ones(K)", "n": "2"},
        {"last": "z", "count": "n"},
    )
    inputs = draw(shapes)
    got = run(definition, inputs, shapes, outputs=("o", "last", "count"))
    S = torch.einsum("bthk,bthv->bthkv", inputs["k"], inputs["v"]).cumsum(1)
    z = 1 + inputs["k"].cumsum(1)
    n = torch.arange(SIZES["T"], dtype=torch.float64)[:, None] + 3
    want = torch.einsum("bthk,bthkv->bthv", inputs["q"], S) / ((inputs["q"] * z).sum(-1) + n)[..., None]
    torch.testing.assert_close(got["o"], want, rtol=1e-10, atol=1e-10)
    close(got["last"], z[:, -1])
    close(got["count"], torch.full((2, 2), 11.0, dtype=torch.float64))


def test_a_state_can_hold_the_token_before():
    shapes = {"k": "B T H K"}
    definition = define(["y = k + before", "before = k"], {"before": "zeros(K)"}, {"last": "before"})
    inputs = draw(shapes)
    got = run(definition, inputs, shapes, outputs=("y", "last", "before"))
    shifted = torch.cat([torch.zeros_like(inputs["k"][:, :1]), inputs["k"][:, :-1]], 1)
    close(got["y"], inputs["k"] + shifted)
    close(got["last"], inputs["k"][:, -1])
    close(got["before"], inputs["k"])


def test_a_state_as_output_of_every_token():
    inputs = draw(GATED)
    got = run(matrix_state(STEPS["simple_gla"]), inputs, GATED, outputs=("S", "final_state"))
    assert got["S"].shape == (2, 9, 4, 3, 5)
    close(got["S"][:, -1], got["final_state"])
    head = {name: x if name == "initial_state" else x[:, :4] for name, x in inputs.items()}
    close(got["S"][:, 3], direct(head, "head")["final_state"])


def test_no_state_at_all():
    shapes = {"x": "B T H K", "w": "H"}
    inputs = draw(shapes)
    got = run(
        define(["y = softmax(w * x, axis=K)", "m = max(x, axis=K) - mean(x, axis=K)"]), inputs, shapes, ("y", "m")
    )
    close(got["y"], torch.softmax(inputs["w"][:, None] * inputs["x"], -1))
    close(got["m"], inputs["x"].amax(-1) - inputs["x"].mean(-1))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("where(k > 0, k, -1)", lambda k: torch.where(k > 0, k, -1.0)),
        ("where((k > 0) & (k < 1), 1, 0)", lambda k: ((k > 0) & (k < 1)).double()),
        ("clamp(k, -0.5, scale)", lambda k: k.clamp(-0.5, 0.5)),
        ("maximum(k, 0) + minimum(0.25, k)", lambda k: k.relu() + k.clamp(max=0.25)),
        ("softplus(40 * k)", lambda k: torch.logaddexp(40 * k, torch.zeros_like(k))),
        ("2 ** k + k ** 2 - 1 / (1 + k * k)", lambda k: 2**k + k**2 - 1 / (1 + k * k)),
        ("K * k % 2 // 0.5", lambda k: torch.remainder(3 * k, 2) // 0.5),
        ("k @ outer(k, k)", lambda k: (k * k).sum(-1, keepdim=True) * k),
        ("outer(k, k) @ diag(k) @ k", lambda k: k * (k**3).sum(-1, keepdim=True)),
        ("(diag(k) @ diag(k) + outer(k, k)) @ ones(K)", lambda k: k * k + k * k.sum(-1, keepdim=True)),
        ("transpose(outer(k, exp(k))) @ k", lambda k: k.exp() * (k * k).sum(-1, keepdim=True)),
        ("sum(k, axis=K) * k", lambda k: k.sum(-1, keepdim=True) * k),
        ("-(2 * outer(k, k) / 4) @ k", lambda k: -k * (k * k).sum(-1, keepdim=True) / 2),
        ("diag(k) @ exp(k) + k @ diag(k)", lambda k: k * k.exp() + k * k),
        ("k - sigmoid(0) * k", lambda k: k / 2),
    ],
)  # fmt: skip
def test_expressions(text, want):
    shapes = {"k": "B T H K"}
    inputs = draw(shapes)
    close(run(define([f"y = {text}"]), inputs, shapes, ("y",))["y"], want(inputs["k"]))


def test_absent_initial_state_is_zero():
    inputs = draw(GATED)
    got = run(matrix_state(STEPS["gated_delta"]), inputs | {"initial_state": None}, GATED)
    want = direct(inputs | {"initial_state": torch.zeros_like(inputs["initial_state"])}, "head", True)
    close(got["o"], want["o"])
    close(got["final_state"], want["final_state"])


@pytest.mark.parametrize("shape", ["B T HV", "B T HV K"])
def test_absent_gate_has_its_default(shape):
    step = STEPS["gated_delta" if shape == "B T HV" else "kda"]
    shapes = GATED | {"g": shape}
    inputs = draw(shapes) | {"g": None}
    got = run(matrix_state(step), inputs, shapes, defaults={"g": 0})
    close(got["o"], direct(inputs, None, True)["o"])


def test_a_line_is_dropped_when_its_input_is_absent():
    definition = matrix_state(["S = exp(g) * S if g", *STEPS["delta_rule"], "gone = 2 * g if g"])
    inputs = draw(GATED)
    options = {"outputs": ("o", "gone"), "optional": ("g",)}
    close(run(definition, inputs, GATED, **options)["o"], direct(inputs, "head", True)["o"])
    got = run(definition, inputs | {"g": None}, GATED, **options)
    close(got["o"], direct(inputs, None, True)["o"])
    assert got["gone"] is None


def test_absent_input_without_default_is_named():
    with pytest.raises(DefinitionError) as caught:
        run(matrix_state(STEPS["gated_delta"]), draw(GATED) | {"g": None}, GATED)
    (problem,) = caught.value.problems
    assert problem.message == "input 'g' is absent and has no default"
    assert (problem.line.text, problem.start, problem.end) == ("S = exp(g) * S", 8, 9)


@pytest.mark.parametrize("sizes", [{"T": 0}, {"B": 0}, {"T": 1}, {"B": 0, "T": 0}])
def test_few_or_no_tokens(sizes):
    inputs = {name: x.requires_grad_() for name, x in draw(GATED, **sizes).items()}
    got = run(matrix_state(STEPS["gated_delta"]), inputs, GATED)
    want = direct(inputs, "head", True)
    close(got["o"], want["o"])
    close(got["final_state"], want["final_state"])
    (got["o"].sum() + got["final_state"].sum()).backward()
    assert all(x.grad is not None and x.grad.shape == x.shape for x in inputs.values() if x.numel())


def test_any_order_of_axes_and_any_strides():
    shapes = GATED | {"k": "B H T K", "v": "T B HV V"}
    inputs = draw(GATED)
    turned = inputs | {"k": inputs["k"].transpose(1, 2), "v": inputs["v"].transpose(0, 1)}
    close(run(matrix_state(STEPS["gated_delta"]), turned, shapes)["o"], direct(inputs, "head", True)["o"])


def test_inputs_of_lower_precision_are_taken_as_they_are():
    inputs = {name: x.to(torch.bfloat16) for name, x in draw(GATED).items()}
    got = run(matrix_state(STEPS["gated_delta"]), inputs, GATED)
    close(got["o"], direct({name: x.double() for name, x in inputs.items()}, "head", True)["o"])


def test_inputs_keep_their_bits():
    inputs = draw(GATED)
    before = {name: x.clone() for name, x in inputs.items()}
    run(matrix_state(STEPS["gated_delta"]), inputs, GATED)
    assert all(torch.equal(inputs[name], before[name]) for name in inputs)


def test_a_constant_per_sequence():
    shapes = GATED | {"g": "N HV"}
    inputs = draw(shapes, B=1, N=3)
    got = run(matrix_state(STEPS["simple_gla"]), inputs, shapes, lengths=[4, 2, 3])
    spread = inputs["g"].repeat_interleave(torch.tensor([4, 2, 3]), 0)[None]
    want = run(matrix_state(STEPS["simple_gla"]), inputs | {"g": spread}, GATED, lengths=[4, 2, 3])
    close(got["o"], want["o"])
    close(got["final_state"], want["final_state"])


def test_reset_gate_and_underflow_stay_finite():
    inputs = draw(GATED)
    inputs["g"][:, 4] = -3e37
    got = run(matrix_state(STEPS["gated_delta"]), inputs, GATED)
    tail = {name: x[:, 4:] for name, x in inputs.items() if name != "initial_state"}
    want = direct(tail, "head", True, state=torch.zeros_like(inputs["initial_state"]))
    close(got["o"][:, 4:], want["o"])


def test_head_counts_must_divide():
    with pytest.raises(DefinitionError, match="HV = 4 is no multiple of H = 3"):
        run(matrix_state(STEPS["gated_delta"]), draw(GATED, H=3), GATED)


def test_sizes_must_agree():
    inputs = draw(GATED)
    with pytest.raises(DefinitionError, match="axis T is 9, but 8 in v"):
        run(matrix_state(STEPS["gated_delta"]), inputs | {"v": inputs["v"][:, :8]}, GATED)


def test_a_long_sequence_in_seconds():
    inputs = draw(GATED, B=1, T=4096, H=1, HV=1)
    started = time.perf_counter()
    run(matrix_state(STEPS["gated_delta"]), inputs, GATED)
    assert time.perf_counter() - started < 30
