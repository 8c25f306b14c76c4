"""The variants on a GPU: their expressions are kernels that nobody wrote, forward and gradient."""

from pathlib import Path

import pytest
import torch
from support.ops import check, inputs

from chunkwise.runner import load

pytestmark = pytest.mark.gpu

VARIANTS = sorted((Path(__file__).resolve().parents[2] / "examples" / "variants").glob("*.yaml"))


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("seqlens", [None, (70, 0, 1, 64)], ids=["plain", "packed"])
@pytest.mark.parametrize("file", VARIANTS, ids=lambda file: file.stem)
def test_every_variant(file, seqlens, io):
    kernel = load(file, backend="triton", mode="chunk")
    T = sum(seqlens) if seqlens else 130
    given = inputs(kernel, io, seqlens=seqlens, device="cuda", T=T, H=2, HV=4, K=64, V=64)
    check(kernel, given, seqlens=seqlens, backward=True)
