"""Where the same bits must come out: a sample in any batch (X1, X4), a sequence alone or packed (V10, V11)."""

import pytest
import torch
from support.ops import inputs, op, same_bits

SIZES = dict(T=19, H=1, HV=1, K=16, V=12)
STEPS = ["gla_step", "lightning_step", "kda_step", "mamba2_step", "gla_serial"]
BATCHED = ["gated_delta", "simple_gla", "retention", "gla", "kda_core", "mamba2", *STEPS]


def batched(kernel, given):
    return [name for name in given if {"B", "N"} & set(kernel.whole.inputs[name].axes)]


@pytest.mark.parametrize("name", BATCHED)
def test_x1_batches_of_1_4_and_8(name):
    kernel = op(name, 16, "interpret")
    given = inputs(kernel, B=8, **SIZES)
    results = {B: kernel(**{**given, **{n: given[n][:B] for n in batched(kernel, given)}}) for B in (1, 4, 8)}
    for B in (4, 8):
        assert same_bits(results[B].o[:1], results[1].o)
        assert same_bits(results[B].final_state[:1], results[1].final_state)


@pytest.mark.parametrize("name", BATCHED)
def test_x4_other_samples_change(name):
    kernel = op(name, 16, "interpret")
    given, others = inputs(kernel, B=2, **SIZES), inputs(kernel, B=2, seed=1, **SIZES)
    mixed = {n: torch.cat([given[n][:1], others[n][1:]]) if n in batched(kernel, given) else given[n] for n in given}
    one, two = kernel(**given), kernel(**mixed)
    assert same_bits(one.o[:1], two.o[:1]) and same_bits(one.final_state[:1], two.final_state[:1])
    assert not torch.equal(one.o[1:], two.o[1:])


@pytest.mark.parametrize(
    "name,C,lengths",
    [
        ("gated_delta", 128, (500, 700, 900)),
        ("gated_delta", 16, (40, 0, 1, 31)),
        ("simple_gla", 64, (130, 200, 300)),
    ],
)
def test_v10_chunk_states_packed_and_alone(name, C, lengths):
    kernel = op(name, C, "interpret").until("scan")
    given = inputs(kernel, seqlens=lengths, H=1, HV=1, K=16, V=16)
    packed, row, slot = kernel(**given, seqlens=lengths), 0, 0
    for n, length in enumerate(lengths):
        cut = {each: x[n : n + 1] if each == "initial_state" else x[:, row : row + length] for each, x in given.items()}
        alone = kernel(**cut)
        assert same_bits(packed.h[:, slot : slot + alone.h.shape[1]], alone.h)
        assert same_bits(packed.final_state[n : n + 1], alone.final_state)
        row, slot = row + length, slot + alone.h.shape[1]
    assert not packed.h[:, slot:].any()
