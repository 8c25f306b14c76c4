"""Sizes: the E cases, and where states are read and handed on, S3 and S12."""

import pytest
import torch
from support.ops import OPS, check, close, inputs, op, refusal, same_bits

from chunkwise.runner.diagnostics import codes

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("K,V", [(48, 60), (60, 100), (100, 48), (3, 5)])
@pytest.mark.parametrize("name", OPS)
def test_e1_no_powers_of_two(name, K, V):
    check(op(name), inputs(op(name), torch.bfloat16, K=K, V=V))


@pytest.mark.parametrize("K,V", [(96, 128), (160, 128), (192, 128), (256, 128), (256, 256), (300, 32)])
@pytest.mark.parametrize("name", OPS)
def test_e2_long_keys(name, K, V):
    check(op(name), inputs(op(name), torch.bfloat16, K=K, V=V, T=33, H=1, HV=1))


@pytest.mark.parametrize("io", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_e4_grouped_heads(name, io):
    """K = 80, V = 96, HV = 2 H and 3 H, states too."""
    for HV in (4, 6):
        check(op(name), inputs(op(name), io, B=1, T=20, K=80, V=96, H=2, HV=HV))


@pytest.mark.parametrize("H,HV", [(2, 3), (4, 2), (2, 1)])
@pytest.mark.parametrize("name", OPS)
def test_e5_value_heads_that_are_no_multiple(name, H, HV):
    found = refusal(op(name), **inputs(op(name), H=H, HV=HV))
    assert {each.code for each in found} == {codes.CONSTRAINT}
    assert all(f"H = {H}, HV = {HV}" in each.message for each in found)


@pytest.mark.parametrize("io", DTYPES, ids=str)
@pytest.mark.parametrize("T", [1, 2, 8])
@pytest.mark.parametrize("name", OPS)
def test_e7_tiny(name, T, io):
    check(op(name), inputs(op(name), io, T=T, K=8, V=8))


@pytest.mark.parametrize("C", [1, 40, 50, 200])
@pytest.mark.parametrize("name", OPS)
def test_e9_any_chunk_length_on_the_reference(name, C):
    """The kernels refuse these (tests/interpreted/test_memory.py)."""
    check(op(name, C), inputs(op(name, C), torch.bfloat16, T=90, B=1))


@pytest.mark.parametrize("empty", [dict(T=0), dict(B=0), dict(T=0, B=0)], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_e10_nothing_there(name, empty):
    an_op = op(name)
    given = {n: x.requires_grad_() for n, x in inputs(an_op, torch.bfloat16, **empty).items()}
    out = an_op(**given)
    assert out.o.shape == (empty.get("B", 2), empty.get("T", 70), 4, 80)
    assert same_bits(out.final_state.detach(), given["initial_state"].detach())
    torch.autograd.backward([out.o, out.final_state], [torch.ones_like(out.o), torch.ones_like(out.final_state)])
    for input_name, x in given.items():
        expected = torch.ones_like(x) if input_name == "initial_state" else torch.zeros_like(x)
        assert torch.equal(x.grad, expected), input_name


@pytest.mark.parametrize("C", [16, 32, 128])
@pytest.mark.parametrize("name", OPS)
def test_e14_one_answer_for_every_chunk_length(name, C):
    given = inputs(op(name), torch.bfloat16, T=150, B=1)
    result, other = op(name, C)(**given), op(name, 64)(**given)
    close(op(name, 64), given, result.o, other, "o")
    close(op(name, 64), given, result.final_state, other, "final_state")
    check(op(name, C), inputs(op(name), T=150, B=1, H=1, HV=2, K=24, V=16))


@pytest.mark.parametrize("T", [63, 500, 1000])
@pytest.mark.parametrize("name", OPS)
def test_s3_the_state_at_the_last_valid_row(name, T):
    check(op(name, 64), inputs(op(name, 64), torch.bfloat16, B=1, T=T, H=1, HV=1, K=16, V=24))


@pytest.mark.parametrize("cut", [1, 64, 75])
@pytest.mark.parametrize("name", OPS)
def test_s12_two_halves(name, cut):
    """The second half starts from the first one's final state."""
    an_op = op(name)
    given = inputs(an_op, torch.bfloat16, T=130)
    timed = [n for n in given if "T" in an_op.whole.inputs[n].axes]
    first = an_op(**{**given, **{n: given[n][:, :cut] for n in timed}})
    rest = {n: given[n][:, cut:] for n in timed} | {"initial_state": first.final_state}
    second, whole = an_op(**{**given, **rest}), an_op(**given)
    close(an_op, given, torch.cat([first.o, second.o], dim=1), whole, "o")
    close(an_op, given, second.final_state, whole, "final_state")
