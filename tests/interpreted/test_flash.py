"""The kernels of attention in the interpreter, forward and backward: every mask and shape against the definition."""

import math
from dataclasses import replace

import pytest
import torch
from support.attention import (
    BARE,
    LITTLE,
    MASKS,
    SHAPES,
    dropped_alike,
    dropped_packed_is_alone,
    nan_leaves_no_trace,
    packed_is_alone,
    results,
)
from support.ops import check, inputs, op, same_bits

from chunkwise.runner.calling.function import Op
from chunkwise.stages._flash import query_rows, query_span

FLASH = op("flash", backend="interpret")


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask):
    check(FLASH, inputs(FLASH, Sq=40, Sk=70, absent=("sinks",), **LITTLE), params=MASKS[mask], backward=True)


@pytest.mark.parametrize("mask", ["causal", "window and prefix", "queries that see nothing"])
def test_what_the_kernel_for_hopper_reads_of_queries(mask):
    """Of each key which queries see it, and of each head lse and delta in rows."""
    B, HQ, Sq, Sk = 2, 5, 37, 20 if mask == "queries that see nothing" else 150
    i, own = torch.arange(Sq), torch.arange(Sq) + Sk - Sq
    end = (own + 1).clamp(min=13 if "prefix" in mask else 0).int().expand(B, Sq).contiguous()
    first = (own - 9 if "window" in mask else own * 0).clamp(min=0).int().expand(B, Sq).contiguous()
    low, high = torch.empty(B, Sk, dtype=torch.int32), torch.empty(B, Sk, dtype=torch.int32)
    lse, delta, words = torch.randn(B, Sq, HQ), torch.randn(B, Sq, HQ), torch.empty(B, HQ, 2, Sq)
    for each in (query_span(first, end, low, high), query_rows(lse, delta, words)):
        each.kernel[each.grid](**each.args, **each.constexprs)
    j = torch.arange(Sk)[:, None]
    seen = (first[:, None] <= j) & (j < end[:, None])
    assert torch.equal(seen, (low[..., None] <= i) & (i < high[..., None]))
    torch.testing.assert_close(words, torch.stack([lse / math.log(2), delta], 2).permute(0, 3, 2, 1))


def test_sinks():
    check(FLASH, inputs(FLASH, Sq=33, Sk=20, absent=("slopes",), **LITTLE), backward=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape):
    check(FLASH, inputs(FLASH, B=1, absent=BARE, **SHAPES[shape]), backward=True)


@pytest.mark.parametrize("empty", [dict(B=0), dict(Sq=0)], ids=str)
def test_nothing(empty):
    check(FLASH, inputs(FLASH, **{**LITTLE, "Sq": 5, "Sk": 6, **empty}), backward=True)


def test_nan_that_no_query_may_see():
    """M4: in the future, and before the window, inside of tiles and beside them."""
    given = inputs(FLASH, Sq=80, Sk=80, absent=BARE, **LITTLE)
    nan_leaves_no_trace("interpret", given, {}, slice(41, 80), slice(0, 41))
    nan_leaves_no_trace("interpret", given, dict(window=5), slice(0, 10), slice(14, 80))


def test_nan_that_a_query_sees_is_not_lost():
    given = inputs(FLASH, Sq=40, Sk=40, absent=BARE, **LITTLE)
    given["v"][:, 20, :, 3] = torch.inf
    found = results("interpret", given)
    assert found["o"][:, :20].isfinite().all() and not found["o"][:, 20:, :, 3].isfinite().any()


def test_bits_do_not_depend_on_the_batch():
    """X1, X4."""
    given = inputs(FLASH, **{**LITTLE, "B": 2, "Sq": 40, "Sk": 50})
    both = results("interpret", given)
    alone = results(
        "interpret", {name: x[1:] if name in ("q", "k", "v", "lengths") else x for name, x in given.items()}
    )
    assert all(same_bits(both[name][1:], alone[name]) for name in both)


def test_sequences_one_after_another():
    packed_is_alone("interpret")


def test_dropout():
    """In tiles of 32 by 32, and of 16 queries by 64 keys."""
    tiles = {"BM_F32": 16, "BN_F32": 64}
    dropped_alike(FLASH, with_tiles(FLASH, ("flash_fwd", "flash_bwd_dkdv", "flash_bwd_dq"), tiles))
    dropped_packed_is_alone("interpret")
    given = inputs(FLASH, Sq=40, Sk=50, **LITTLE)
    check(FLASH, given, params=dict(dropout=0.25, seed=2**45 + 3, window=30), backward=True)


def with_tiles(an_op, names, tiles):
    """The op whose stages of these names have these in front of their own configurations."""
    found = {}
    for name in names:
        stage = an_op.stages[name]
        launchers = (replace(each, configs=tiled(each.configs, tiles)) for each in stage.launchers)
        found[name] = replace(stage, launchers=tuple(launchers))
    return Op(an_op.spec, {**an_op.stages, **found}, an_op.backend)


def tiled(configs, tiles):
    return lambda axes, device: [each | tiles for each in configs(axes, device)]


ONE_LOOP = with_tiles(FLASH, ("flash_fwd", "flash_bwd_dq"), {"ONE_LOOP": 1})
"""As on Hopper: tiles at a border in the loop of all tiles, and all once more where a number is not finite."""


@pytest.mark.parametrize("Sq,Sk", [(40, 70), (64, 128), (50, 20)])
def test_one_loop(Sq, Sk):
    given = inputs(ONE_LOOP, Sq=Sq, Sk=Sk, absent=("sinks",), **LITTLE)
    check(ONE_LOOP, given, params=dict(window=20, prefix_lm=13), backward=True)


def test_one_loop_and_nan():
    given = inputs(ONE_LOOP, Sq=80, Sk=80, absent=BARE, **LITTLE)
    nan_leaves_no_trace("interpret", given, {}, slice(41, 80), slice(0, 41), flash=ONE_LOOP)
    nan_leaves_no_trace("interpret", given, dict(window=5), slice(0, 10), slice(14, 80), flash=ONE_LOOP)
    given["v"][:, 20, :, 3] = torch.inf
    found = results("interpret", given, flash=ONE_LOOP)
    assert found["o"][:, :20].isfinite().all() and not found["o"][:, 20:, :, 3].isfinite().any()
