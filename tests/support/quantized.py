"""Cases of caches in eight bits that the tests of their references and of their kernels share."""

import torch
from support.one_stage import stage_op
from support.ops import inputs, op, same_bits

from chunkwise.runner import load

SIZES = dict(B=3, Sq=2, HQ=4, H=2, D=24, DV=40, PAGES=12, PAGE=16, NP=3)
FUSED = "quantized_paged_attention"
DTYPES = [torch.int8, torch.float8_e4m3fn]


def quantized(backend="reference", fuse="none"):
    return load("paged_decode_quant", backend=backend, mode="chunk", fuse=fuse)


def caches(an_op, held, io=torch.float32, absent=(), **sizes):
    """Inputs whose caches are int8 or fp8."""
    given = inputs(an_op, io, absent=absent, **(SIZES | sizes))
    fp8 = {name: given[name].float().mul(2.3).to(held) for name in "kv"}
    return given | fp8 if held.is_floating_point else given


def is_paged_decode(backend, held, fuse):
    """What the op over the numbers themselves gives; nan past a length leaves no trace, in a number or a scale."""
    paged = quantized(backend, fuse)
    given = caches(paged, held)
    given["pages"] = torch.tensor([[4, 7, 1], [4, 0, -1], [9, 99, 99]], dtype=torch.int32)
    given["lengths"] = torch.tensor([48, 21, 5], dtype=torch.int32)
    wide = {name: given[name].float() * given[f"{name}_scale"][..., None] for name in "kv"}
    rest = {name: x for name, x in given.items() if not name.endswith("_scale")}
    right = op("paged_decode", backend=backend)(**rest | wide)
    used = torch.zeros(12, 16, dtype=torch.bool)
    for page, count in [(4, 16), (7, 16), (1, 16), (0, 5), (9, 5)]:
        used[page, :count] = True
    for name in ("k", "v"):
        given[f"{name}_scale"][~used] = torch.nan
        if held.is_floating_point:
            given[name].view(torch.uint8)[~used] = 0x7F
    found = paged(**given)
    assert same_bits(found.o, right.o) and same_bits(found.lse, right.lse)


def every_byte(backend, tmp_path):
    """All 256 numbers that fp8 has, nan among them, and all that int8 has."""
    dequant = stage_op(tmp_path, "dequant", backend=backend)
    codes = torch.arange(256).to(torch.uint8).view(2, 1, 4, 32)
    scale = torch.tensor([1.0, 0.5, 3.0, 0.0, 1.0, -2.0, 0.1, 7.0]).view(2, 1, 4)
    for held in DTYPES:
        x = codes.view(held)
        right = x.float() * scale[..., None]
        found = dequant(x=x, scale=scale).y
        torch.testing.assert_close(found, right, rtol=0, atol=0, equal_nan=True)
        assert found.isnan().sum() == (2 if held.is_floating_point else 0)
