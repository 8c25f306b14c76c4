"""Hard numbers through the kernels: N2, N3, N7, N9, N13, N15, N17, N21, N22."""

import math

import pytest
import torch
from support.ops import check, inputs, op

GATES = {
    "n2 resets": lambda g: torch.where(torch.arange(g.shape[1])[None, :, None] % 9 == 0, -3e37, g),
    "n3 zeros": torch.zeros_like,
    "n3 some zeros": lambda g: torch.where(torch.arange(g.shape[1])[None, :, None] % 2 == 0, 0.0, g),
    "n9 strong": lambda g: -20 * torch.rand(g.shape, generator=torch.Generator().manual_seed(0)),
    "n15 minus 1e4": lambda g: torch.full_like(g, -1e4),
    "n15 minus inf": lambda g: torch.full_like(g, -torch.inf),
}
SIZES = dict(B=1, T=70, H=1, HV=2, K=16, V=24)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_gates(name, gate):
    kernel = op(name, 32, "interpret")
    given = inputs(kernel, **SIZES)
    check(kernel, {**given, "g": GATES[gate](given["g"])})


def hard(g):
    """Log decays down to -20, resets, and a stretch that underflows; of a gate per channel, resets in some channels."""
    place = torch.arange(g.shape[1]).view(1, -1, *[1] * (g.dim() - 2))
    channel = torch.arange(g.shape[3]) if g.dim() == 4 else 0
    strong = -20 * torch.rand(g.shape, generator=torch.Generator().manual_seed(0))
    strong = torch.where((place + channel) % 9 == 0, -3e37, strong)
    return torch.where((place > 20) & (place < 25), -1e4, strong)


@pytest.mark.parametrize("name", ["gated_delta", "simple_gla", "gla", "kda_core"])
def test_n2_n9_n15_gradients(name):
    kernel = op(name, 16, "interpret")
    given = inputs(kernel, B=1, T=37, H=1, HV=1, K=16, V=12)
    check(kernel, {**given, "g": hard(given["g"])}, backward=True)


@pytest.mark.parametrize("name", ["simple_gla", "gla"])
def test_n7_suffix_sums(name):
    """The gradient of the gates' chunk sums: 32 x 1e8 before 32 ones; total minus prefix would make 0 of the ones."""
    kernel = op(name, 64, "interpret").until("cumsum")
    g = torch.zeros_like(inputs(kernel, B=1, T=64, H=1, HV=1, K=2)["g"]).requires_grad_()
    ones = [1] * (g.dim() - 2)
    kernel(g=g).y.backward(torch.cat([torch.full([32], 1e8), torch.ones(32)]).view(1, 64, *ones).expand_as(g))
    sums = torch.arange(32, 0, -1).float() * math.log2(math.e)
    assert torch.equal(g.grad[:, 32:], sums.view(1, 32, *ones).expand_as(g[:, 32:]))


@pytest.mark.parametrize("C", [16, 64])
@pytest.mark.parametrize("beta", [0.99, 1.0])
@pytest.mark.parametrize("name", ["gated_delta", "kda_core"])
def test_n13_identical_tokens(name, beta, C):
    kernel = op(name, C, "interpret")
    given = inputs(kernel, **SIZES)
    for name in "qkv":
        given[name] = given[name][:, :1].expand_as(given[name]).contiguous()
    given["beta"], given["g"] = torch.full_like(given["beta"], beta), torch.zeros_like(given["g"])
    check(kernel, given, case="equal_keys")


@pytest.mark.parametrize("A_log,a", [(100.0, -200.0), (80.0, -80.0), (3.0, 4.0)])
def test_n17_gates_computed_in_the_op(A_log, a):
    kernel = op("qwen3_next_gdn", 16, "interpret")
    given = inputs(kernel, **{**SIZES, "T": 20})
    given["A_log"], given["dt_bias"] = torch.full([2], A_log), torch.zeros(2)
    check(kernel, {**given, "a": torch.full_like(given["a"], a)})


@pytest.mark.parametrize("name, gate", [("kda", "a"), ("kda_bounded", "a"), ("mamba2", "dt")])
def test_n17_a_gate_of_inf_times_zero(name, gate):
    """A_log = 100 and a pre-activation of -200: the decay is 1, and the gradients are finite."""
    kernel = op(name, 16, "interpret")
    given = inputs(kernel, **{**SIZES, "T": 20})
    given["A_log"], given["dt_bias"] = torch.full_like(given["A_log"], 100.0), torch.zeros_like(given["dt_bias"])
    given[gate] = torch.full_like(given[gate], -200.0)
    check(kernel, given)
    leaves = {each: x.clone().requires_grad_() for each, x in given.items()}
    out = kernel(**leaves)
    torch.autograd.backward([out.o, out.final_state], [torch.ones_like(out.o), torch.ones_like(out.final_state)])
    assert all(x.grad.isfinite().all() for x in leaves.values())


@pytest.mark.parametrize("amplitude", [1e-3, 1e-4, 0.0])
def test_n21_n22_short_rows(amplitude):
    kernel = op("qwen3_next_gdn", 16, "interpret")
    given = inputs(kernel, **{**SIZES, "T": 20, "K": 128})
    for name in "qk":
        given[name][:, 3:15] *= amplitude
    out = kernel(**given)
    assert amplitude or not out.o[:, 3:15].any()
    check(kernel, given)
