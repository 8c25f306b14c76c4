"""Where the same bits must come out on a GPU: X1, X4, V10, V11, L6, L12."""

import pytest
import torch
from support.ops import OPS, inputs, op, same_bits

pytestmark = pytest.mark.gpu

SIZES = dict(T=300, H=4, HV=8, K=128, V=128)


def batched(kernel, given):
    return [name for name in given if {"B", "N"} & set(kernel.whole.inputs[name].axes)]


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_x1_batches_of_1_4_and_8(name, io):
    kernel = op(name, backend="triton")
    given = inputs(kernel, io, device="cuda", B=8, **SIZES)
    results = {B: kernel(**{**given, **{n: given[n][:B] for n in batched(kernel, given)}}) for B in (1, 4, 8)}
    for B in (4, 8):
        assert same_bits(results[B].o[:1], results[1].o)
        assert same_bits(results[B].final_state[:1], results[1].final_state)
    again = kernel(**given)
    assert same_bits(again.o, results[8].o) and same_bits(again.final_state, results[8].final_state)


@pytest.mark.parametrize("name", OPS)
def test_x4_other_samples_change(name):
    kernel = op(name, backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", B=4, **SIZES)
    others = inputs(kernel, torch.bfloat16, seed=1, device="cuda", B=4, **SIZES)
    mixed = {n: torch.cat([given[n][:1], others[n][1:]]) if n in batched(kernel, given) else given[n] for n in given}
    one, two = kernel(**given), kernel(**mixed)
    assert same_bits(one.o[:1], two.o[:1]) and same_bits(one.final_state[:1], two.final_state[:1])
    assert not torch.equal(one.o[1:], two.o[1:])


PACKED = [(128, (500, 700, 900)), (64, (130, 200, 300)), (64, (8191, 1)), (16, (1, 0, 40))]
"""With 16 heads: a long sequence of few is cut where it stands alone, packed it is not (stages/_pieces.py)."""


@pytest.mark.parametrize("C,lengths", PACKED)
@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_v10_v11_packed_and_alone(name, C, lengths):
    kernel = op(name, C, "triton").until("scan")
    given = inputs(kernel, torch.bfloat16, seqlens=lengths, device="cuda", H=8, HV=16, K=64, V=96)
    packed, row, slot = kernel(**given, seqlens=lengths), 0, 0
    for n, length in enumerate(lengths):
        cut = {each: x[n : n + 1] if each == "initial_state" else x[:, row : row + length] for each, x in given.items()}
        alone = kernel(**cut)
        assert same_bits(packed.h[:, slot : slot + alone.h.shape[1]], alone.h)
        assert same_bits(packed.final_state[n : n + 1], alone.final_state)
        row, slot = row + length, slot + alone.h.shape[1]
    assert not packed.h[:, slot:].any()


@pytest.mark.parametrize("name", OPS)
def test_l6_l12_views_and_inputs_that_stay(name):
    kernel = op(name, backend="triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", B=2, **SIZES)
    before, plain = {n: x.clone() for n, x in given.items()}, kernel(**given)
    assert all(same_bits(before[n], x) for n, x in given.items())
    views = {n: x.transpose(0, -1).contiguous().transpose(0, -1) for n, x in given.items()}
    assert all(same_bits(a, b) for a, b in zip(kernel(**views), plain, strict=True))
    only = kernel(**given, outputs=["o"])
    assert only.final_state is None and same_bits(only.o, plain.o)
