"""Exported files on their kernels in the interpreter, against the op on the same kernels."""

import pytest
from support.exported import check_exported
from support.ops import inputs, op

PACKED = (5, 0, 3)
WITH_EVERY_STAGE = ["qwen3_next_gdn", "mamba2", "gla", "kda_bounded"]
CASES = [(name, seqlens) for name in WITH_EVERY_STAGE for seqlens in (None, PACKED)]
"""tests/test_export.py has all pipelines, on references."""


@pytest.mark.parametrize(
    "name,seqlens", CASES, ids=[f"{name}-{'packed' if lengths else 'plain'}" for name, lengths in CASES]
)
def test_equals_the_op(name, seqlens, tmp_path):
    found = op(name, 16, "interpret")
    given = inputs(found, seqlens=seqlens, **dict(B=1, T=17 if seqlens is None else 10, H=1, HV=2, K=16, V=16))
    check_exported(found, "triton", given, tmp_path, dict(seqlens=seqlens) if seqlens else None)
