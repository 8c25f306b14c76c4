"""Kernels about pieces of a long sequence that start where they have forgotten: starts, and the states chained."""

import pytest
import torch
from support.ops import same_bits

from chunkwise.runner.planning.execute import run_kernel
from chunkwise.stages._piece_starts import chain_launch, piece_starts, starts_launch

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


def test_starts():
    k, beta, g = gated_rows()
    starts = torch.empty(N, PIECES, HV, dtype=torch.int32)
    run_kernel(starts_launch(k, beta, g, starts, C=C))
    expected = piece_starts(k, beta, g, pieces=PIECES, C=C)
    assert same_bits(starts, expected)
    assert (expected[:, 4:] < 0).any() and (expected > 0).any() and (expected[:, :2] == 0).all()


@pytest.mark.parametrize("gated", [True, False])
def test_states_that_enter(gated):
    """Where nobody asks there is nan in what is read, and what is written stays as it was."""
    starts = piece_starts(*gated_rows(), pieces=PIECES, C=C) if gated else None
    lacking = torch.ones(N, PIECES, HV, dtype=torch.bool) if starts is None else starts < 0
    lacking[:, 0] = False
    generator = torch.Generator().manual_seed(1)
    maps = torch.randn(N, PIECES, HV, K, K, generator=generator) / 5
    passed = torch.randn(N, PIECES, HV, K, V, generator=generator)
    entered = torch.full_like(passed, torch.nan)
    expected = entered.clone()
    for n, p, h in torch.cartesian_prod(torch.arange(N), torch.arange(PIECES - 1), torch.arange(HV)).tolist():
        mapped, asked = lacking[n, p, h], lacking[n, p + 1, h]
        if asked:
            before = maps[n, p, h] @ expected[n, p, h] if mapped else 0
            expected[n, p + 1, h] = before + passed[n, p, h]
        if not (asked and mapped):
            maps[n, p, h] = torch.nan
        if not asked:
            passed[n, p, h] = torch.nan
    run_kernel(chain_launch(starts, maps, passed, entered))
    torch.testing.assert_close(entered, expected, equal_nan=True)
    assert lacking.any() and entered.isnan().any()
