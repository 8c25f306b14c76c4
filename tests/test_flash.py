"""Attention by its references on the CPU: every mask and shape against the definition, and against PyTorch's own."""

import math

import pytest
import torch
from support.attention import BARE, LITTLE, MASKS, SHAPES, nan_leaves_no_trace, packed_is_alone, results
from support.ops import check, inputs, op

FLASH = op("flash")


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask):
    given = inputs(FLASH, torch.bfloat16, Sq=40, Sk=50, absent=("sinks",), **LITTLE)
    check(FLASH, given, params=MASKS[mask], backward=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape):
    check(FLASH, inputs(FLASH, torch.bfloat16, B=1, absent=BARE, **SHAPES[shape]), backward=True)


@pytest.mark.parametrize("io", [torch.float32, torch.float16, torch.float64], ids=str)
def test_dtypes(io):
    check(FLASH, inputs(FLASH, io, Sq=40, Sk=50, **LITTLE), backward=True)


@pytest.mark.parametrize("absent", [("sinks",), ("slopes",), BARE], ids=str)
def test_absent_inputs(absent):
    check(FLASH, inputs(FLASH, torch.bfloat16, Sq=70, Sk=70, absent=absent, **LITTLE), backward=True)


@pytest.mark.parametrize("empty", [dict(B=0), dict(Sq=0), dict(Sk=0)], ids=str)
def test_nothing(empty):
    """E10: no batch, no query, no key."""
    check(FLASH, inputs(FLASH, **{**LITTLE, "Sq": 5, "Sk": 6, **empty}), backward=True)


def test_rows_that_see_nothing():
    """V15, M3: o = 0 and lse = -inf exactly, gradients 0; valid logits of -50,000 are no mask."""
    given = inputs(FLASH, Sq=9, Sk=4, absent=BARE, **LITTLE)
    found = results("reference", given)
    assert (found["o"][:, :5] == 0).all() and (found["lse"][:, :5] == -math.inf).all()
    assert (found["d_q"][:, :5] == 0).all() and found["lse"][:, 5:].isfinite().all()
    low = {name: torch.ones_like(given[name]) for name in "qkv"}
    found = FLASH(**low, scale=-50_000 / 16)
    assert (found.o[:, 5:] == 1).all() and torch.equal(found.lse[:, 5], torch.full((1, 2), -50_000.0))


def test_as_pytorch_has_it():
    given = inputs(FLASH, torch.float64, Sq=30, Sk=30, B=2, HQ=4, H=2, D=24, DV=16, absent=BARE)
    q, k, v = (given[name].transpose(1, 2).requires_grad_() for name in "qkv")
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    gradients = torch.autograd.grad(right.sum(), (q, k, v))
    found = results("reference", given)
    for name, x in zip(("o", "d_q", "d_k", "d_v"), (right, *gradients)):
        torch.testing.assert_close(found[name], x.transpose(1, 2), rtol=1e-12, atol=1e-13)


def test_nan_that_no_query_may_see():
    """M4: in the future, and before the window."""
    given = inputs(FLASH, Sq=40, Sk=40, absent=BARE, **LITTLE)
    nan_leaves_no_trace("reference", given, {}, slice(21, 40), slice(0, 21))
    nan_leaves_no_trace("reference", given, dict(window=5), slice(0, 10), slice(14, 40))


def test_a_flag_changes_backward_as_it_changes_forward():
    """B5."""
    given = inputs(FLASH, Sq=12, Sk=12, absent=BARE, **LITTLE)
    causal, all_keys = results("reference", given), results("reference", given, dict(causal=0))
    assert all(not torch.equal(causal[name], all_keys[name]) for name in causal)
    assert (causal["d_k"][:, -1] != 0).any() and (causal["o"][:, 0] == given["v"][:, 0]).all()


def test_sequences_one_after_another():
    packed_is_alone("reference")
    varlen = op("flash_varlen")
    given = inputs(varlen, torch.bfloat16, Sq=30, Sk=40, ND=4, **LITTLE)
    check(varlen, given, params=dict(window=8, prefix_lm=3), backward=True)


def test_keys_past_a_length():
    """M4: nan there leaves no trace; a batch of length 0 sees nothing."""
    given = inputs(FLASH, Sq=3, Sk=20, absent=("sinks", "slopes"), **{**LITTLE, "B": 3})
    given["lengths"] = torch.tensor([20, 11, 0], dtype=torch.int32)
    clean = results("reference", given)
    for name in "kv":
        given[name][1, 11:] = torch.nan
        given[name][2] = torch.nan
    found = results("reference", given)
    assert all(torch.equal(found[name], clean[name]) for name in found)
    assert (found["o"][2] == 0).all() and (found["lse"][2] == -math.inf).all()
    alone = results("reference", {name: given[name][1:2, : 11 if name in "kv" else None] for name in "qkv"})
    torch.testing.assert_close(found["o"][1:2], alone["o"])
