"""The kernels behind tests/test_sparse.py in the interpreter."""

import pytest
import torch
from support.one_stage import stage_op
from support.ops import check, same_bits
from support.sparse import (
    FUSED,
    all_chosen_is_dense,
    chooses_largest,
    nan_past_a_length,
    scores_of_any_numbers,
    sparse,
)


@pytest.mark.parametrize("fuse", ["none", FUSED])
@pytest.mark.parametrize("sizes", [{}, dict(B=0), dict(Sk=0), dict(Sk=3)], ids=str)
def test_op(sizes, fuse):
    check(*sparse("interpret", fuse=fuse, **sizes))


def test_all_chosen():
    all_chosen_is_dense("interpret")


@pytest.mark.parametrize("fuse", ["none", FUSED])
def test_nan(fuse):
    nan_past_a_length("interpret", fuse)


def test_choosing(tmp_path):
    chooses_largest("interpret", tmp_path)


def test_choosing_among_many(tmp_path):
    """More than a tile of numbers, of every size and sign, and many alike in each digit."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-(2**31), 2**31, (3, 5000), generator=generator).int().view(torch.float32)
    x[1] = x[1].half().float()
    x[2] = (10 * torch.randn(5000, generator=generator)).round()
    x = x.nan_to_num(0.0)[None]
    found, right = (stage_op(tmp_path, "top_k", backend=name)(x=x) for name in ("interpret", "reference"))
    assert torch.equal(found.places, right.places) and torch.equal(found.count, right.count)


def test_scores(tmp_path):
    scores_of_any_numbers("interpret", tmp_path)


def test_bits_do_not_depend_on_the_batch():
    """X1."""
    dsa, given = sparse("interpret")
    own = [name for name in given if name not in ("w_uk", "w_uv")]
    both, alone = dsa(**given), dsa(**{name: x[1:] if name in own else x for name, x in given.items()})
    assert same_bits(both.o[1:], alone.o) and same_bits(both.lse[1:], alone.lse)
