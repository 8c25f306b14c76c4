"""The kernels behind tests/test_compressed.py in the interpreter."""

import pytest
from support.compressed import FUSED, WINDOW, all_chosen_is_dense, compressed, nan_past_a_length
from support.ops import check, same_bits


@pytest.mark.parametrize("fuse", ["none", FUSED])
@pytest.mark.parametrize("sizes", [{}, dict(NB=0), dict(NB=1), dict(M=5, absent=("sinks",))], ids=str)
def test_op(sizes, fuse):
    check(*compressed("interpret", fuse=fuse, **sizes), params=WINDOW)


def test_all_chosen():
    all_chosen_is_dense("interpret")


@pytest.mark.parametrize("fuse", ["none", FUSED])
def test_nan(fuse):
    nan_past_a_length("interpret", fuse)


def test_bits_do_not_depend_on_the_batch():
    """X1."""
    csa, given = compressed("interpret", B=2)
    shared = ("bias_a", "bias_b", "bias_ka", "bias_kb", "w_o", "sinks")
    both = csa(**given)
    alone = csa(**{name: x if x is None or name in shared else x[1:] for name, x in given.items()})
    assert same_bits(both.y[1:], alone.y) and same_bits(both.lse[1:], alone.lse)
