"""Kernels about pieces of a long sequence that start where they have forgotten: starts, and the states chained."""

import itertools

import pytest
import torch
from support.ops import same_bits

from chunkwise.runner.planning.execute import run_kernel
from chunkwise.stages._piece_launches import chain_launch, starts_launch
from chunkwise.stages._piece_starts import piece_starts

N, H, HV, K, V, C, PIECES = 2, 1, 3, 24, 20, 16, 8


def gated_rows():
    """Heads that never forget, do so soon and late; keys that are long, a nan."""
    generator = torch.Generator().manual_seed(0)
    T = 40 * C + 5
    k = torch.nn.functional.normalize(torch.randn(N, T, H, K, generator=generator), dim=-1)
    k[:, 200:260] *= 3
    beta = torch.rand(N, T, HV, generator=generator)
    x = -torch.rand(N, T, HV, generator=generator) * torch.tensor([0.01, 3.0, 2.5])
    g = torch.cat([rows.cumsum(1) for rows in x.split(C, 1)], 1)
    g[0, 100, 1] = torch.nan
    return k, beta, g


@pytest.mark.parametrize("reverse", [False, True])
def test_starts(reverse):
    k, beta, g = gated_rows()
    starts = torch.empty(N, PIECES, HV, dtype=torch.int32)
    run_kernel(starts_launch(k, beta, g, starts, C=C, reverse=reverse))
    expected = piece_starts(k, beta, g, pieces=PIECES, C=C, reverse=reverse)
    assert same_bits(starts, expected)
    near, far = (slice(-2, None), slice(4)) if reverse else (slice(2), slice(4, None))
    assert (expected[:, far] < 0).any() and (expected[:, far] > 0).any() and (expected[:, near] == 41 * reverse).all()


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
def test_states_that_enter(gated, reverse):
    """Where nobody asks there is nan in what is read, and what is written stays as it was."""
    starts = piece_starts(*gated_rows(), pieces=PIECES, C=C, reverse=reverse) if gated else None
    lacking = torch.ones(N, PIECES, HV, dtype=torch.bool) if starts is None else starts < 0
    lacking[:, -1 if reverse else 0] = False
    generator = torch.Generator().manual_seed(1)
    maps = torch.randn(N, PIECES, HV, K, K, generator=generator) / 5
    passed = torch.randn(N, PIECES, HV, K, V, generator=generator)
    entered = torch.full_like(passed, torch.nan)
    expected = entered.clone()
    order = list(range(PIECES))[:: -1 if reverse else 1]
    for (p, after), n, h in itertools.product(itertools.pairwise(order), range(N), range(HV)):
        mapped, asked = lacking[n, p, h], lacking[n, after, h]
        if asked:
            M = maps[n, p, h].T if reverse else maps[n, p, h]
            expected[n, after, h] = (M @ expected[n, p, h] if mapped else 0) + passed[n, p, h]
        if not (asked and mapped):
            maps[n, p, h] = torch.nan
        if not asked:
            passed[n, p, h] = torch.nan
    run_kernel(chain_launch(starts, maps, passed, entered, io=torch.float32, reverse=reverse))
    torch.testing.assert_close(entered, expected, equal_nan=True)
    assert lacking.any() and entered.isnan().any()


def test_products_of_tf32_take_the_nearest():
    """From piece to piece no more is lost than rounding to 11 digits does, and a nan stays one whatever its bits."""
    generator = torch.Generator().manual_seed(2)
    maps = torch.diag_embed(1 - torch.rand(N, PIECES, HV, K, generator=generator) / 64)
    passed = torch.zeros(N, PIECES, HV, K, V)
    passed[:, 0] = 1 + torch.rand(N, HV, K, V, generator=generator)
    passed[0, 0, 0, 1, 0] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    entered = torch.full_like(passed, torch.nan)
    run_kernel(chain_launch(None, maps, passed, entered, io=torch.bfloat16))
    expected = maps[:, 1:-1].diagonal(dim1=-2, dim2=-1).prod(1)[..., None] * passed[:, 0]
    found = entered[:, -1]
    assert found[0, 0, :, 0].isnan().all() and found.isnan().sum() == K
    error = ((found - expected) / expected).abs().nan_to_num().max()
    assert 0 < error <= (PIECES - 2) * 2 * 2.0**-12
