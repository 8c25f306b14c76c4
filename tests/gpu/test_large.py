"""O1 and O4: more elements than 32 bits count, more heads times sequences than a grid's second axis takes."""

import pytest
import torch
from support.gpu_room import room, total
from support.ops import GATED, check, inputs, op, same_bits

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", GATED)
def test_o1_more_than_2_to_the_31_elements(name):
    """Each sample of the batch gives the bits that it gives alone, the last ones, behind 2^31, too."""
    kernel = op(name, backend="triton")
    sizes = dict(B=16, T=17477, H=64, HV=64, K=128, V=128)
    torch.cuda.empty_cache()
    if total() < 100e9:
        pytest.skip("needs a GPU of 100 GB or more")
    with room(int(100e9)):
        each_sample_alone(kernel, sizes)


def each_sample_alone(kernel, sizes):
    given = inputs(kernel, torch.bfloat16, device="cuda", **sizes)
    assert given["q"].numel() > 2**31
    whole = kernel(**given)
    for n in (0, 7, 14, 15):
        alone = kernel(**{each: x[n : n + 1] for each, x in given.items()})
        assert same_bits(whole.o[n : n + 1], alone.o) and same_bits(whole.final_state[n : n + 1], alone.final_state)
    assert whole.o[15].abs().sum() > 0


@pytest.mark.parametrize("name", GATED)
def test_o4_heads_times_sequences_above_65535(name):
    kernel = op(name, 16, "triton")
    given = inputs(kernel, torch.bfloat16, device="cuda", B=1100, T=17, H=60, HV=60, K=16, V=16)
    check(kernel, given)


def test_o4_packed():
    kernel, lengths = op("gated_delta", 16, "triton"), (3, 0, 2) * 240
    sizes = dict(H=96, HV=96, K=16, V=16)
    given = inputs(kernel, torch.bfloat16, seqlens=lengths, device="cuda", **sizes)
    check(kernel, given, seqlens=lengths)
