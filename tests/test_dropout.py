"""Dropout in attention by its reference: which weights are dropped, how many, and what that does to gradients."""

import pytest
import torch
from support.attention import BARE, LITTLE, by_definition, dropped_alike, dropped_packed_is_alone, results
from support.ops import check, inputs, op, same_bits

from chunkwise.runner.definition import Line, evaluate, parse_definition
from chunkwise.stages import _dropout

FLASH = op("flash")


def test_philox_as_it_was_published():
    """Known answers of Random123, philox4x32-10."""
    counter, key = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0_A4093822
    words = _dropout.philox(key, [torch.tensor(word) for word in counter])
    assert [int(word) for word in words] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_the_same_weights_wherever_they_stand():
    dropped_alike(FLASH, FLASH)
    dropped_packed_is_alone("reference")


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_as_many_as_asked_for(p):
    """The fraction dropped, along rows, along columns and between neighbours, within four deviations of chance."""
    dropped = (~by_definition((2, 3, 300, 256), p, 7)).double()
    x = (dropped - p) / (p * (1 - p)) ** 0.5
    assert abs(x.sum()) < 4 * x.numel() ** 0.5
    for dim in range(4):
        near = x.narrow(dim, 1, x.shape[dim] - 1) * x.narrow(dim, 0, x.shape[dim] - 1)
        assert abs(near.sum()) < 4 * near.numel() ** 0.5
        rows = x.sum(dim) / x.shape[dim] ** 0.5
        assert abs((rows**2 - 1).sum()) < 4 * (2 * rows.numel()) ** 0.5


def test_none_is_as_if_there_were_none():
    given = inputs(FLASH, Sq=12, Sk=12, absent=BARE, **LITTLE)
    bare, none = results("reference", given), results("reference", given, dict(dropout=0, seed=5))
    assert all(same_bits(bare[name], none[name]) for name in bare)


def test_all_is_nothing():
    given = inputs(FLASH, Sq=6, Sk=6, absent=BARE, **LITTLE)
    found = results("reference", given, dict(dropout=1))
    assert all((found[name] == 0).all() for name in ("o", "d_q", "d_k", "d_v")) and found["lse"].isfinite().all()


@pytest.mark.parametrize("name,sizes", [("flash", {}), ("flash_varlen", dict(ND=3))])
def test_verifies(name, sizes):
    """Outputs and gradients against the definition, which drops the same."""
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16, Sq=30, Sk=40, **{**LITTLE, "B": 2}, **sizes)
    check(an_op, given, params=dict(dropout=0.25, seed=2**45 + 3, window=21, softcap=3), backward=True)


def test_gradients_by_differences():
    given = inputs(FLASH, torch.float64, B=1, Sq=4, Sk=5, HQ=2, H=1, D=3, DV=2, absent=("lengths", "slopes"))
    tensors = [given[name].requires_grad_() for name in ("q", "k", "v", "sinks")]

    def function(q, k, v, sinks):
        return tuple(FLASH(q=q, k=k, v=v, sinks=sinks, dropout=0.4, seed=9))

    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize("seed", [0, 2**31, 2**53 - 1, -1])
@pytest.mark.parametrize("p", [1e-9, 0.5, 1 - 1e-9])
def test_c9_no_value_compiles_anew(p, seed):
    """Kernels get 32-bit numbers, signed, as Triton types what fits; one outside would be of another type."""
    found = _dropout.dropout_args(p, seed, 7.0)
    assert {type(x) for name, x in found.items() if name != "kept_scale"} == {int}
    assert all(-(2**31) <= x < 2**31 for x in found.values()) and type(found["kept_scale"]) is float
    assert (found["seed_low"] + (found["seed_high"] << 32) - seed) % 2**32 == 0


def test_in_a_definition():
    """By place alone: a part of the keys drops what the whole drops there."""
    block = {"dense": [Line("y = dropout(x, 0.5, 4, index(B) + 2, index(HQ), index(Sq), index(Sk) + 3)", 0)]}
    declared = {"x": ("B", "HQ", "Sq", "Sk")}
    x = torch.ones(2, 3, 5, 7, dtype=torch.float64)
    y = evaluate(parse_definition(block), {"x": x}, declared=declared, outputs={"y": declared["x"]})["y"]
    assert torch.equal(y, 2.0 * by_definition((4, 3, 5, 10), 0.5, 4)[2:, :, :, 3:])
