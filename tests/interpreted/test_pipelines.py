"""Every pipeline's kernels in the interpreter, stage by stage and against the definition."""

import pytest
from support.ops import PIPELINES, check, inputs, op


@pytest.mark.parametrize("seqlens", [None, (17, 0, 1, 20)], ids=["plain", "packed"])
@pytest.mark.parametrize("name", PIPELINES)
def test_verify(name, seqlens):
    kernel = op(name, 16, "interpret")
    check(kernel, inputs(kernel, seqlens=seqlens, B=1, T=38, H=1, HV=2, K=24, V=40), seqlens=seqlens)
