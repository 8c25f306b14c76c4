"""The kernels behind tests/test_quantized.py in the interpreter."""

import pytest
from support.ops import check
from support.quantized import DTYPES, FUSED, caches, every_byte, is_paged_decode, quantized


@pytest.mark.parametrize("held", DTYPES, ids=str)
@pytest.mark.parametrize("fuse", ["none", FUSED])
def test_op(fuse, held):
    paged = quantized("interpret", fuse)
    check(paged, caches(paged, held, NP=6), params=dict(window=40))


@pytest.mark.parametrize("held", DTYPES, ids=str)
@pytest.mark.parametrize("fuse", ["none", FUSED])
def test_is_paged_decode(fuse, held):
    """Fused or not, to the bit."""
    is_paged_decode("interpret", held, fuse)


def test_every_byte(tmp_path):
    every_byte("interpret", tmp_path)
