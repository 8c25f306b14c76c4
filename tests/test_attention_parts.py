"""Partial results merged, caches in splits and pages, and attention over a latent, by their references."""

import pytest
import torch
from support.attention import LATENT, PAGED, latent, merged_is_whole, paged_is_contiguous
from support.one_stage import STAGES
from support.ops import check, inputs, op


def test_merging(tmp_path):
    merged_is_whole("reference", tmp_path)


@pytest.mark.parametrize("name", PAGED)
def test_pages(name):
    paged_is_contiguous(name, "reference")


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
def test_decode(io):
    decode = op("flash_decode")
    sizes = dict(B=2, Sq=2, Sk=50, HQ=4, H=1, D=24, DV=40)
    check(decode, inputs(decode, io, absent=("sinks",), **sizes), params=dict(window=17), backward=True)


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name,Sq", [("paged_decode", 2), ("paged_prefill", 30)])
def test_paged(name, Sq, io):
    paged = op(name)
    sizes = dict(B=2, Sq=Sq, HQ=4, H=2, D=24, DV=40, PAGES=5, PAGE=16, NP=3)
    check(paged, inputs(paged, io, absent=("sinks",), **sizes), params=dict(prefix_lm=2), backward=True)


@pytest.mark.parametrize("io", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LATENT)
def test_latent(name, io):
    check(*latent(name, io=io), backward=True)


@pytest.mark.parametrize("name", ["mla_absorbed", "mla_decode"])
def test_absorbed_is_naive(name):
    naive, given = latent("mla_naive", io=torch.float64)
    absorbed, _ = latent(name)
    for a, b in zip(naive(**given, window=9), absorbed(**given, window=9)):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("device", "width", "tiles"),
    [
        ("sm_80", 128, [(64, 3), (64, 2), (128, 2)]),
        ("sm_80", 256, [(32, 2)]),
        ("sm_90", 128, [(64, 3), (64, 2), (128, 2)]),
        ("sm_90", 256, [(64, 1)]),
        ("sm_100", 256, [(64, 1)]),
    ],
)
def test_c2_tiles_that_have_room(device, width, tiles):
    """As compiled for each: on sm_90 at 256, 64 keys in two stages take 262,400 bytes, and 232,448 there are."""
    (launcher,) = STAGES["rope_attention"].launchers
    found = launcher.configs(dict(Sq=150, Sk=170, HQ=4, DN=width, DR=width, DV=width), device)
    assert [(each["BN"], each["num_stages"]) for each in found] == tiles
