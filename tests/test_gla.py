"""Gated linear attention with a decay per channel: pair sums, gradients, resets, strong gates, causality."""

import pytest
import torch
from support.channel_stages import check_causality, check_split, check_vjp, cut
from support.ops import LITTLE, check, definition, inputs, op

from chunkwise.stages import chunk_h_k, chunk_local_cumsum_k, chunk_o_k, gla_intra
from chunkwise.stages._channel_decay import pairs

STAGES = [gla_intra, chunk_h_k, chunk_o_k, chunk_local_cumsum_k]
OUTPUTS = [(stage, only) for stage in STAGES for only in (None, *stage.CONTRACT.outputs)]
RESET = -3e37


@pytest.mark.parametrize("C", [1, 2, 16, 64])
def test_pairs_are_the_sums_over_channels(C):
    x, y = torch.randn(2, 3, C, 5, dtype=torch.float64)
    b = -torch.rand(3, C, 5, dtype=torch.float64).cumsum(1)
    by_pair = torch.einsum("nik,njk,nijk->nij", x, y, torch.exp2(b[:, :, None] - b[:, None])).tril()
    torch.testing.assert_close(pairs(x, y, b), by_pair, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("T,C", [(37, 16), (32, 16), (1, 64), (0, 16), (50, 40)])
@pytest.mark.parametrize("stage,only", OUTPUTS, ids=lambda x: getattr(x, "__name__", x or "all").rpartition(".")[2])
def test_vjps_equal_autograd(stage, only, T, C):
    """All cotangents, or only one; C = 40 is no power of two."""
    check_vjp(stage, T, C, only, scale=0.7)


def test_chunk_h_k_starts_from_zero():
    check_vjp(chunk_h_k, 37, 16, absent=("initial_state",))


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
def test_n2_resets_of_single_channels(io):
    """A log decay of -3e37 at t = 0, inside a chunk, at its edge and several times, in every other channel."""
    given = inputs(op("gla"), io, T=150)
    for t in (0, 21, 25, 40, 64, 127):
        given["g"][:, t, :, t % 2 :: 2] = RESET
    check(op("gla"), given)


def test_n2_equals_the_two_parts_run_alone():
    an_op, at = op("gla"), 40
    given = inputs(an_op, T=100, absent=("initial_state",))
    given["g"][:, at] = RESET
    whole = definition(an_op, given)
    parts = [definition(an_op, cut(an_op, given, *rows)) for rows in ((0, at), (at, 100))]
    assert torch.equal(whole["o"], torch.cat([each["o"] for each in parts], dim=1))
    assert torch.equal(whole["final_state"], parts[1]["final_state"])
    check(an_op, given)


@pytest.mark.parametrize(
    "C,io", [(16, torch.bfloat16), (64, torch.float32), (64, torch.float16), (128, torch.bfloat16)], ids=str
)
def test_n9_log_decays_down_to_minus_20(C, io):
    given = inputs(op("gla", C), io, case="strong_gate", T=130, **LITTLE)
    given["g"][:, 30:60, :, ::3] = -20
    given["g"][:, :, :, 1::3] *= 1e-3
    check(op("gla", C), given, case="strong_gate", backward=True)


@pytest.mark.parametrize("value", [-300.0, -1e4, -3e38, -float("inf")])
def test_n15_decays_that_underflow(value):
    """Whole chunks, every second token and every third channel, with a decay that no float holds."""
    given = inputs(op("gla"), torch.bfloat16, T=130, absent=("initial_state",), **LITTLE)
    given["g"][:, 64:128] = value
    given["g"][:, 1:64:2, :, ::3] = value
    check(op("gla"), given, backward=True)


@pytest.mark.parametrize("io", [torch.float64, torch.bfloat16], ids=str)
def test_s12_split_call(io):
    check_split(op("gla"), inputs(op("gla"), io, T=100), 37)


def test_n10_causality():
    given = inputs(op("gla", 16), T=22, B=1)
    check_causality(op("gla", 16), given, "g", 21, -5.0)
