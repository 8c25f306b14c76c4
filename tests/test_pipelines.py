"""Every pipeline in pipelines/ against its definition, stage by stage, on the CPU references."""

import pytest
import torch
from support.ops import LITTLE, OPS, PIPELINES, RAGGED, check, inputs, op

from chunkwise.runner.verification.generate import CASES

LENGTHS = {torch.bfloat16: RAGGED, torch.float16: RAGGED, torch.float32: (0, 1, 65), torch.float64: (0, 1, 65)}
"""By dtype: a float32 model is drawn eight times, each sequence for itself."""


def absences(name):
    """Each optional input absent alone, and all of them."""
    optional = [each.name for each in op(name).spec.inputs.values() if each.optional]
    return list(dict.fromkeys([*((each,) for each in optional), tuple(optional)]))


def chunk_lengths(name):
    return [16, 32, 64, 128] if "C" in op(name).spec.axes else [None]


@pytest.mark.parametrize("io", LENGTHS, ids=str)
@pytest.mark.parametrize("name", PIPELINES)
def test_dtypes(name, io):
    check(op(name), inputs(op(name), io, seqlens=LENGTHS[io], **LITTLE), seqlens=LENGTHS[io])


@pytest.mark.parametrize("seqlens", [None, RAGGED], ids=["plain", "packed"])
@pytest.mark.parametrize("name", PIPELINES)
def test_absent_inputs(name, seqlens):
    for absent in absences(name):
        check(op(name), inputs(op(name), torch.bfloat16, seqlens=seqlens, absent=absent), seqlens=seqlens)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PIPELINES)
def test_cases(name, case):
    check(op(name), inputs(op(name), torch.bfloat16, case=case), case=case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", OPS)
def test_cases_in_float32(name, case):
    check(op(name), inputs(op(name), case=case, **LITTLE), case=case)


@pytest.mark.parametrize("T", [1, 63, 130])
@pytest.mark.parametrize("name,C", [(name, C) for name in PIPELINES for C in chunk_lengths(name)])
def test_chunk_lengths(name, C, T):
    """E14: every chunk length gives the definition's answer, and so does a pipeline without chunks."""
    check(op(name, C), inputs(op(name, C), torch.bfloat16, T=T, B=1))


@pytest.mark.parametrize("name", PIPELINES)
def test_gradients(name):
    """Every vjp against autograd of its reference, every gradient against autograd of the definition."""
    lengths = (17, 0, 1)
    check(op(name, 16), inputs(op(name), seqlens=lengths, **LITTLE), seqlens=lengths, backward=True)
