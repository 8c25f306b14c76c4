"""The kernels behind tests/test_attention_parts.py in the interpreter."""

import pytest
import torch
from support.attention import LATENT, PAGED, latent, merged_is_whole, paged_is_contiguous
from support.ops import check, inputs, op, same_bits


def test_merging(tmp_path):
    merged_is_whole("interpret", tmp_path)


@pytest.mark.parametrize("name", PAGED)
def test_pages(name):
    paged_is_contiguous(name, "interpret")


def test_many_queries():
    """More than one tile of them."""
    prefill = op("paged_prefill", backend="interpret")
    sizes = dict(B=2, Sq=40, HQ=4, H=2, D=16, DV=24, PAGES=7, PAGE=16, NP=4)
    check(prefill, inputs(prefill, **sizes), params=dict(window=30))


@pytest.mark.parametrize("PAGE", [12, 1])
def test_pages_of_any_length(PAGE):
    decode = op("paged_decode", backend="interpret")
    sizes = dict(B=2, Sq=1, HQ=4, H=2, D=16, DV=24, PAGES=7, PAGE=PAGE, NP=5)
    check(decode, inputs(decode, absent=("sinks", "slopes"), **sizes))


@pytest.mark.parametrize("Sk", [0, 40, 1030])
def test_splits(Sk):
    """One split writes its result; three are summed. No key at all is a result too."""
    decode = op("flash_decode", backend="interpret")
    sizes = dict(B=2, Sq=2, Sk=Sk, HQ=4, H=2, D=16, DV=24)
    check(decode, inputs(decode, absent=("sinks",), **sizes), params=dict(window=200))


def test_bits_do_not_depend_on_the_batch():
    decode = op("flash_decode", backend="interpret")
    given = inputs(decode, B=2, Sq=1, Sk=600, HQ=2, H=1, D=16, DV=24)
    given["lengths"] = torch.tensor([600, 333], dtype=torch.int32)
    both = decode(**given)
    alone = decode(**{name: x[1:] if name in ("q", "k", "v", "lengths") else x for name, x in given.items()})
    assert same_bits(both.o[1:], alone.o) and same_bits(both.lse[1:], alone.lse)


@pytest.mark.parametrize("name", LATENT)
def test_latent(name):
    check(*latent(name, "interpret"))


def test_splits_of_the_latent():
    """Two splits of a sequence's own keys, whatever the other sequences have."""
    decode, given = latent("mla_paged_decode", "interpret", Sq=1, HQ=2, DC=16, DN=8, DV=8, PAGES=12, PAGE=128, NP=9)
    given["lengths"] = torch.tensor([1152, 333], dtype=torch.int32)
    both, right = decode(**given), op("mla_paged_decode")(**given)
    torch.testing.assert_close(both.o, right.o, rtol=3e-6, atol=3e-6)
    torch.testing.assert_close(both.lse, right.lse, rtol=3e-6, atol=3e-6)
    own = ("q", "q_rope", "pages", "lengths")
    alone = decode(**{name: x[1:] if name in own else x for name, x in given.items()})
    assert same_bits(both.o[1:], alone.o) and same_bits(both.lse[1:], alone.lse)


def test_nan_past_a_length_of_the_latent():
    """M4, where every tile's rows stand at one query and where they do not."""
    for HQ in (4, 64):
        absorbed, given = latent("mla_absorbed", "interpret", B=1, HQ=HQ, DC=16, DN=8, DV=8, absent=())
        given["lengths"] = torch.tensor([25], dtype=torch.int32)
        clean = absorbed(**given)
        for name in ("c", "k_rope"):
            given[name][:, 25:] = torch.nan
        assert all(same_bits(a, b) for a, b in zip(clean, absorbed(**given)))
