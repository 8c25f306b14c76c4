"""A long sequence of few heads whose scans run in pieces side by side: it is the whole sequence's."""

import pytest
import torch
from support.ops import check, inputs, op, same_bits

from chunkwise.runner.planning.execute import run_kernel
from chunkwise.stages._piece_launches import starts_launch
from chunkwise.stages._piece_starts import piece_starts, scan_pieces

pytestmark = pytest.mark.gpu

SIZES = dict(B=2, T=8192 + 37, H=1, HV=2, K=128, V=128)
"""Eight pieces, the last one ragged."""


def kernel(name="gated_delta"):
    return op(name, backend="triton")


def given(name="gated_delta", case="typical", **sizes):
    return inputs(kernel(name), torch.bfloat16, device="cuda", case=case, **{**SIZES, **sizes})


def starts_of(k, beta, g, reverse):
    """On the device."""
    starts = torch.empty(k.shape[0], 8, beta.shape[2], dtype=torch.int32, device="cuda")
    run_kernel(starts_launch(k, beta, g, starts, C=64, reverse=reverse))
    return starts


@pytest.mark.parametrize("case", ["typical", "weak_gate", "strong_gate", "resets"])
def test_in_budget(case):
    """Not equal keys: over so many tokens bf16 itself is off by 5e-2 there."""
    assert scan_pieces(SIZES | {"C": 64}) == 8
    check(kernel(), given(case=case))


def test_without_a_gate():
    check(kernel("delta_rule"), given("delta_rule"))


@pytest.mark.parametrize("first", [1e-3, 1.0])
def test_heads_apart_and_gates_that_change(first):
    """Pieces of one head with a start and without one, in turns."""
    x = given()
    when = torch.arange(SIZES["T"], device="cuda")[:, None] < 5000
    x["g"] = x["g"] * torch.where(when, torch.tensor([first, 1.0], device="cuda"), 1e-3)
    check(kernel(), x)


def test_a_large_initial_state():
    """Of which nothing is left where most pieces start."""
    x = given()
    check(kernel(), x | {"initial_state": 1e30 * x["initial_state"]})


@pytest.mark.parametrize("K, V", [(64, 64), (128, 256)])
def test_widths(K, V):
    check(kernel(), given(HV=1, K=K, V=V))


def test_starts_are_those_of_the_reference():
    generator = torch.Generator("cuda").manual_seed(0)
    draw = lambda *shape: torch.rand(*shape, generator=generator, device="cuda")  # noqa: E731
    k = torch.nn.functional.normalize(torch.randn(2, 8192, 1, 128, generator=generator, device="cuda"), dim=-1)
    k[:, 3000:5000] *= 3
    g = (-4 * draw(2, 128, 64, 4) * torch.tensor([0.001, 0.3, 1.0, 9.0], device="cuda")).cumsum(2).view(2, 8192, 4)
    g[1, 4000, 2] = torch.nan
    k, beta = k.bfloat16(), draw(2, 8192, 4).bfloat16()
    for reverse, inner in ((False, slice(2, None)), (True, slice(-2))):
        expected = piece_starts(k, beta, g, pieces=8, C=64, reverse=reverse)
        assert same_bits(starts_of(k, beta, g, reverse), expected)
        assert (expected[:, inner, 0] == -1).all() and (expected[:, inner, 3] > 0).all()


@pytest.mark.parametrize("case", ["typical", "weak_gate"])
def test_bits_of_batches_and_of_the_past(case):
    x = given(case=case, B=4)
    four = kernel()(**x)
    again = kernel()(**x)
    assert same_bits(four.o, again.o) and same_bits(four.final_state, again.final_state)
    for b in range(4):
        alone = kernel()(**{name: each[b : b + 1] for name, each in x.items()})
        assert same_bits(alone.o, four.o[b : b + 1]) and same_bits(alone.final_state, four.final_state[b : b + 1])
    later = {name: each if name == "initial_state" else each.clone() for name, each in x.items()}
    later["g"][:, 5000:] *= 100
    later["v"][:, 5000:] += 1
    changed = kernel()(**later)
    assert same_bits(changed.o[:, :5000], four.o[:, :5000]) and not torch.equal(changed.o, four.o)


def test_packed_sequences_go_whole():
    lengths = (5000, 0, 1, 4000)
    x = inputs(kernel(), torch.bfloat16, device="cuda", seqlens=lengths, **{**SIZES, "B": 1, "T": sum(lengths)})
    check(kernel(), x, seqlens=lengths)


@pytest.mark.parametrize(
    "name, case", [("gated_delta", "typical"), ("gated_delta", "weak_gate"), ("delta_rule", "typical")]
)
def test_gradients(name, case):
    check(kernel(name), given(name, case, B=1), backward=True)
