"""Attention's kernels on a GPU: the sizes that people compare on, every mask, every width."""

import pytest
import torch
from support.attention import BARE, MASKS, nan_leaves_no_trace
from support.gpu_room import TRUTH, room
from support.ops import check, inputs, op, same_bits

from chunkwise.runner import load

pytestmark = pytest.mark.gpu

SHAPES = [(2, 32, 8, 1024, 128), (1, 64, 8, 4096, 128), (1, 32, 32, 512, 128), (1, 16, 1, 512, 128)]
"""Batch, query heads, key heads, tokens, width."""


def verified(name="flash", io=torch.bfloat16, absent=BARE, params=None, **sizes):
    kernel = op(name, backend="triton")
    result = check(kernel, inputs(kernel, io, device="cuda", absent=absent, **sizes), params=params, backward=True)
    assert "reference" not in {row.backend for row in result.rows}
    torch.cuda.empty_cache()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sizes_that_people_compare_on(shape):
    B, HQ, H, S, D = shape
    with room(24 * 2**30):
        verified(B=B, HQ=HQ, H=H, Sq=S, Sk=S, D=D, DV=D)


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, io):
    verified(io=io, absent=(), params=MASKS[mask], B=2, HQ=4, H=2, Sq=300, Sk=400, D=64, DV=128)


@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_wide_heads(mask):
    """What Hopper has a kernel of its own for."""
    io = torch.float16 if mask == "window" else torch.bfloat16
    verified(io=io, params=MASKS[mask], B=2, HQ=4, H=2, Sq=700, Sk=900, D=128, DV=128)


@pytest.mark.parametrize("Sq,Sk", [(700, 900), (400, 100)])
def test_windows_of_lengths(Sq, Sk):
    verified(absent=("sinks", "slopes"), params=dict(window=200), B=3, HQ=4, H=1, Sq=Sq, Sk=Sk, D=128, DV=128)


@pytest.mark.parametrize("D,DV", [(64, 64), (72, 72), (128, 64), (256, 256), (192, 128)])
def test_widths(D, DV):
    verified(B=1, HQ=4, H=1, Sq=333, Sk=501, D=D, DV=DV)


@pytest.mark.parametrize("Sq,Sk", [(1, 700), (64, 0), (300, 100)])
def test_lengths(Sq, Sk):
    verified(B=2, HQ=8, H=2, Sq=Sq, Sk=Sk, D=128, DV=128)


@pytest.mark.parametrize("absent", [(), ("sinks", "slopes")], ids=str)
def test_sequences_one_after_another(absent):
    verified("flash_varlen", absent=absent, B=1, HQ=4, H=2, Sq=700, Sk=900, ND=7, D=128, DV=128)


@pytest.mark.parametrize("name,sizes", [("flash", {}), ("flash_varlen", dict(ND=7))])
def test_dropout(name, sizes):
    params = dict(dropout=0.1, seed=2**45 + 3)
    verified(name, absent=(), params=params, B=2, HQ=4, H=2, Sq=700, Sk=900, D=128, DV=128, **sizes)


CACHES = [
    "flash_decode", "paged_decode", "paged_prefill", "paged_decode_quant", "mla_absorbed", "mla_decode",
    "mla_paged_decode", "dsa", "csa",
]  # fmt: skip
FUSED = {
    "paged_decode_quant": "quantized_paged_attention", "dsa": "sparse_latent_attention",
    "csa": "sparse_shared_kv_attention",
}  # fmt: skip


@pytest.mark.parametrize("name,fuse", [(name, "none") for name in CACHES] + list(FUSED.items()))
def test_caches(name, fuse):
    kernel = load(name, backend="triton", fuse=fuse)
    sizes = dict(B=3, Sq=200 if name == "paged_prefill" else 2, Sk=3000, HQ=32, H=8, D=128, DV=128)
    sizes |= dict(DC=512, DN=128, DR=64, PAGES=200, PAGE=64, NP=50)
    sizes |= dict(HI=16, KI=128, NB=750, M=4, GO=4, HG=8, DO=512)  # more than dsa and csa choose
    with room(TRUTH):
        result = check(kernel, inputs(kernel, torch.bfloat16, device="cuda", **sizes))
    assert "reference" not in {row.backend for row in result.rows}


@pytest.mark.parametrize("name", ["mla_decode", "mla_paged_decode", "dsa"])
def test_latent_of_many_heads(name):
    """As many heads as DeepSeek-V3 has, and a tile that is not full."""
    kernel = load(name, backend="triton", fuse="sparse_latent_attention" if name == "dsa" else "none")
    sizes = dict(B=2, Sq=2, Sk=3000, HQ=200, DC=512, DN=128, DR=64, DV=128, PAGES=120, PAGE=50, NP=60, HI=16, KI=128)
    with room(TRUTH):
        result = check(kernel, inputs(kernel, torch.bfloat16, device="cuda", **sizes))
    assert "reference" not in {row.backend for row in result.rows}


def test_latent_bits_do_not_depend_on_the_batch():
    """Of the batch each program makes several splits, one after another."""
    kernel = op("mla_decode", backend="triton")
    sizes = dict(B=96, Sq=1, Sk=4096, HQ=128, DC=512, DN=128, DR=64, DV=128)
    given = inputs(kernel, torch.bfloat16, device="cuda", **sizes)
    batched = [name for name, value in kernel.whole.inputs.items() if "B" in value.axes]
    alone = kernel(**{**given, **{name: given[name][-1:] for name in batched}})
    assert same_bits(kernel(**given).o[-1:], alone.o)


def test_nan_that_no_query_may_see():
    kernel = op("flash", backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", absent=BARE, B=1, HQ=4, H=2, Sq=400, Sk=400, D=128, DV=128)
    nan_leaves_no_trace("triton", given, dict(window=100), slice(0, 90), slice(200, 400))
