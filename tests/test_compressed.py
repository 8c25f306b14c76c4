"""Attention to compressed blocks by its references."""

import math

import pytest
import torch
from support.compressed import FUSED, WINDOW, all_chosen_is_dense, compressed, nan_past_a_length
from support.ops import check


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_dtypes(io):
    check(*compressed(io=io, absent=("sinks",)), params=WINDOW, backward=True)


@pytest.mark.parametrize("sizes", [dict(B=0), dict(Sq=0), dict(NB=1), dict(Sq=1, M=5), dict(TOP=512)], ids=str)
def test_few(sizes):
    """E10, E7: nothing at all, no block before the only one, one query."""
    check(*compressed(**sizes), params=WINDOW, backward=True)


@pytest.mark.parametrize("NB", [0, 1])
def test_queries_that_see_nothing(NB):
    """V15."""
    csa, given = compressed(NB=NB, absent=("sinks",))
    check(csa, given, params=WINDOW)
    found = csa(**given)
    assert (found.y[:, : 9 - 4 * NB] == 0).all() and (found.lse[:, : 9 - 4 * NB] == -math.inf).all()


def test_all_chosen():
    all_chosen_is_dense("reference")


def test_nan():
    nan_past_a_length("reference")


def test_fused():
    csa, given = compressed(fuse=FUSED)
    assert list(csa.bind(given).forward_plan().notes) == [f"attend: {FUSED} in place of gather, attend"]
    check(csa, given, params=WINDOW, backward=True)
