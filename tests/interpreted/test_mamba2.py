"""mamba2's own kernels in the interpreter: each gradient alone, rows that take more than one tile."""

import pytest
import torch
from support.one_stage import stage_inputs, stage_op
from support.ops import check, inputs, op, same_bits

SIZES = dict(B=1, T=38, H=1, HV=2, K=16, V=24)
RAGGED = (17, 0, 1, 20)


def gradients(kernel, given, names, seqlens):
    leaves = {name: x.clone().requires_grad_(name in names) for name, x in given.items()}
    out = kernel(**leaves, seqlens=seqlens)
    (out.o.sin().sum() + out.final_state.square().sum()).backward()
    return {name: leaves[name].grad for name in names}


@pytest.mark.parametrize("seqlens", [None, RAGGED], ids=["plain", "packed"])
def test_each_gradient_alone(seqlens):
    """What nobody asked for is not stored, and its absence changes no bit of the others."""
    kernel = op("mamba2", 16, "interpret")
    given = inputs(kernel, seqlens=seqlens, **SIZES)
    together = gradients(kernel, given, list(given), seqlens)
    for name in given:
        assert same_bits(gradients(kernel, given, [name], seqlens)[name], together[name]), name


@pytest.mark.parametrize("name", ["discretize", "skip"])
def test_rows_of_more_than_one_tile(tmp_path, name):
    kernel = stage_op(tmp_path, name, backend="interpret")
    check(kernel, stage_inputs(kernel, torch.float32, B=1, T=5, HV=3, V=300), backward=True)
