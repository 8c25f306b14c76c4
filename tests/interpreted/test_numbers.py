"""Hard numbers through the kernels: N2, N3, N9, N13, N15, N17, N21, N22."""

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


@pytest.mark.parametrize("C", [16, 64])
@pytest.mark.parametrize("beta", [0.99, 1.0])
def test_n13_identical_tokens(beta, C):
    kernel = op("gated_delta", C, "interpret")
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


@pytest.mark.parametrize("amplitude", [1e-3, 1e-4, 0.0])
def test_n21_n22_short_rows(amplitude):
    kernel = op("qwen3_next_gdn", 16, "interpret")
    given = inputs(kernel, **{**SIZES, "T": 20, "K": 128})
    for name in "qk":
        given[name][:, 3:15] *= amplitude
    out = kernel(**given)
    assert amplitude or not out.o[:, 3:15].any()
    check(kernel, given)
