"""Kernels of the ops without chunks: widths, lengths, state tiles, memory beside tensors, steps against one call."""

import pytest
import torch
from support.guarded import Guarded
from support.ops import check, inputs, op, refusal, same_bits
from support.steps import SERIAL, check_steps

from chunkwise.runner.diagnostics import codes
from chunkwise.runner.planning.execute import execute

ODD = dict(B=1, H=1, HV=2, K=48, V=80, D=48, DI=80, NS=48)
WIDE = dict(B=1, T=2, H=1, HV=1, K=256, V=256, D=256, DI=300, NS=256)


@pytest.mark.parametrize("T", [1, 63])
@pytest.mark.parametrize("name", SERIAL)
def test_lengths(name, T):
    """With states; S3: the final one is read after the last token."""
    kernel = op(name, backend="interpret")
    check(kernel, inputs(kernel, **{**ODD, "T": T, "HV": 1}))


@pytest.mark.parametrize("name", SERIAL)
def test_packed(name):
    """V1, V4: empty sequences, and rows past the last one, which verify fills with nan."""
    kernel, lengths = op(name, backend="interpret"), (0, 5, 1, 0, 12)
    check(kernel, inputs(kernel, seqlens=lengths, **{**ODD, "T": 21}), seqlens=lengths)


@pytest.mark.parametrize("name", SERIAL)
def test_e2_wide_states(name):
    """Several tiles; lightning_step's outputs wait in memory for their norm."""
    kernel = op(name, backend="interpret")
    check(kernel, inputs(kernel, **WIDE))


@pytest.mark.parametrize("name", SERIAL)
def test_s12_tokens_at_once_are_steps(name):
    kernel = op(name, backend="interpret")
    check_steps(kernel, inputs(kernel, **{**ODD, "T": 5}))


@pytest.mark.parametrize("name", SERIAL)
def test_l6_a_state_that_lies_transposed(name):
    kernel = op(name, backend="interpret")
    given = inputs(kernel, **{**ODD, "T": 3})
    turned = {each: x.mT.contiguous().mT for each, x in given.items()}
    found, plain = kernel(**turned), kernel(**given)
    assert same_bits(found.o, plain.o) and same_bits(found.final_state, plain.final_state)


@pytest.mark.parametrize("sizes", [ODD | dict(K=20, V=3, D=20, DI=5, NS=3, B=2), WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("name", SERIAL)
def test_e1_nan_beside_every_tensor(name, sizes):
    kernel, guarded = op(name, backend="interpret"), Guarded()
    given = inputs(kernel, **{**sizes, "T": 3})
    call = kernel.bind({each: guarded.holding(x) for each, x in given.items()})
    found = execute(call.forward_plan(), call.contiguous, call.params, call.seqs, make=guarded)
    assert guarded.unhurt()
    plain = kernel(**given)
    assert all(torch.equal(x, getattr(plain, each)) and x.isfinite().all() for each, x in found.items())


@pytest.mark.parametrize("name", SERIAL)
def test_l12_what_was_not_asked_for_is_not_stored(name):
    kernel = op(name, backend="interpret")
    given = inputs(kernel, **{**ODD, "T": 3})
    whole = kernel(**given)
    for wanted in ("o", "final_state"):
        only = kernel(**given, outputs=[wanted])
        assert [x is None for x in only] == [each != wanted for each in only._fields]
        assert same_bits(getattr(only, wanted), getattr(whole, wanted))


@pytest.mark.parametrize("name", SERIAL)
def test_e10_nothing_there(name):
    kernel = op(name, backend="interpret")
    for empty in (dict(T=0), dict(B=0)):
        given = inputs(kernel, **{**ODD, **empty})
        out = kernel(**given)
        assert out.o.numel() == 0 and torch.equal(out.final_state, given["initial_state"])


@pytest.mark.parametrize("name", SERIAL)
def test_e2_too_wide_is_refused_by_name(name):
    kernel = op(name, backend="interpret")
    for size in {"K", "V", "D", "NS"} & set(kernel.whole.axis_names):
        (found,) = refusal(kernel, **inputs(kernel, **{**ODD, "T": 1, size: 257}))
        assert found.code == codes.SIZE and f"{size} = 257: at most 256" in found.message


@pytest.mark.parametrize("name,reset", [("gla_step", 0.0), ("gla_serial", -3e37), ("gla_serial", -torch.inf)])
def test_n2_resets(name, reset):
    kernel = op(name, backend="interpret")
    given = inputs(kernel, **{**ODD, "T": 9, "K": 16, "V": 8})
    given["g"][:, (0, 4, 5), :, ::2] = reset
    check(kernel, given)


@pytest.mark.parametrize("A_log", [100.0, -100.0])
def test_n17_steps_of_no_length(A_log):
    kernel = op("mamba2_step", backend="interpret")
    given = inputs(kernel, **{**ODD, "T": 3})
    given["A_log"].fill_(A_log)
    given["dt"].zero_()
    out = kernel(**given)
    assert torch.equal(out.final_state, given["initial_state"]) and out.o.isfinite().all()
