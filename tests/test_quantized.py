"""Caches in eight bits by their references."""

import pytest
import torch
from support.ops import check, refusal
from support.quantized import DTYPES, FUSED, caches, every_byte, is_paged_decode, quantized


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("held", DTYPES, ids=str)
@pytest.mark.parametrize("fuse", ["none", FUSED])
def test_against_the_definition(fuse, held, io):
    paged = quantized(fuse=fuse)
    given = caches(paged, held, io)
    assert len(paged.bind(given).forward_plan().steps) == (4 if fuse == "none" else 2)
    check(paged, given, params=dict(window=30), backward=True)


@pytest.mark.parametrize("held", DTYPES, ids=str)
def test_is_paged_decode(held):
    is_paged_decode("reference", held, "none")


def test_every_byte(tmp_path):
    every_byte("reference", tmp_path)


def test_other_dtypes_are_refused():
    paged = quantized()
    given = caches(paged, torch.int8)
    (found,) = refusal(paged, **given | {"k": given["k"].to(torch.uint8)})
    assert found.message == "k [PAGES PAGE H D] must be int8 or float8_e4m3fn, it is uint8"


def test_gradients_of_what_has_them():
    """Of a cache in fp8 there is none, though PyTorch calls its numbers floating-point."""
    paged = quantized()
    call = paged.bind(caches(paged, torch.float8_e4m3fn, absent=("sinks", "slopes")))
    assert set(call.trainable()) == {"q", "k_scale", "v_scale"}
