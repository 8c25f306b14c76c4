"""The kernels behind tests/test_attention_parts.py in the interpreter."""

import pytest
import torch
from support.attention import latent, merged_is_whole, paged_is_contiguous
from support.ops import check, inputs, op, same_bits


def test_merging(tmp_path):
    merged_is_whole("interpret", tmp_path)


def test_pages():
    paged_is_contiguous("interpret")


@pytest.mark.parametrize("Sk", [0, 40, 300])
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


@pytest.mark.parametrize("name", ["mla_naive", "mla_absorbed"])
def test_latent(name):
    check(*latent(name, "interpret"))


def test_nan_past_a_length_of_the_latent():
    """M4, where every tile's rows stand at one query and where they do not."""
    for HQ in (4, 64):
        absorbed, given = latent("mla_absorbed", "interpret", B=1, HQ=HQ, DC=16, DN=8, DV=8, absent=())
        given["lengths"] = torch.tensor([25], dtype=torch.int32)
        clean = absorbed(**given)
        for name in ("c", "k_rope"):
            given[name][:, 25:] = torch.nan
        assert all(same_bits(a, b) for a, b in zip(clean, absorbed(**given)))
