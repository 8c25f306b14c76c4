"""The one-kernel recurrences in the interpreter: states in slots, and the recurrent form of every pipeline."""

from dataclasses import replace

import pytest
import torch
from support.guarded import Guarded
from support.ops import DECODE, PIPELINES, check, inputs, op, same_bits

from chunkwise.runner.planning.execute import execute


@pytest.mark.parametrize("how", [dict(B=2, T=2), dict(seqlens=(2, 0, 1))], ids=["plain", "packed"])
@pytest.mark.parametrize("name", DECODE)
def test_slots(name, how):
    kernel = op(name, backend="interpret")
    check(kernel, inputs(kernel, H=1, HV=2, K=20, V=18, SLOTS=4, **how), seqlens=how.get("seqlens"))


@pytest.mark.parametrize("name", [name for name in PIPELINES if op(name).recurrent(frozenset())])
def test_recurrent(name):
    kernel = op(name, backend="interpret", mode="recurrent")
    check(kernel, inputs(kernel, B=1, T=3, H=1, HV=2, K=20, V=18))


@pytest.mark.parametrize("name", DECODE)
def test_e1_nan_beside_every_tensor(name):
    """The states in their slots too."""
    kernel, guarded = op(name, backend="interpret"), Guarded()
    given = inputs(kernel, B=2, T=2, H=1, HV=2, K=20, V=18, SLOTS=4)
    held = {each: guarded.holding(x) if x.is_floating_point() else x for each, x in given.items()}
    call = kernel.bind(held)
    found = execute(call.forward_plan(), call.contiguous, call.params, call.seqs, make=guarded)
    assert guarded.unhurt()
    plain = kernel(**given)
    assert same_bits(found["o"], plain.o) and same_bits(held["state"], plain.new_state)
    assert plain.o.isfinite().all() and plain.new_state.isfinite().all()


@pytest.mark.parametrize("backend", ["interpret", "reference"])
@pytest.mark.parametrize("name", DECODE)
def test_what_autograd_saved_is_not_written_over_unseen(name, backend):
    """The state that a backward pass would read again is another one: it is refused, as PyTorch's own writes are."""
    kernel = op(name, backend=backend)
    given = inputs(kernel, B=1, T=1, H=1, HV=1, K=20, V=18, SLOTS=2)
    weight = torch.ones_like(given["state"], requires_grad=True)
    for _ in range(2):  # the second call of a signature goes another way
        y = (weight * given["state"]).sum()
        with torch.no_grad():
            kernel(**given)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
    with torch.inference_mode():
        kernel(**{each: x.clone() for each, x in given.items()})


LITTLE = dict(B=3, T=3, H=1, HV=1, K=20, V=18, SLOTS=5)


def cut(an_op, given, axes, start, length):
    """The inputs with these axes narrowed."""
    found = {}
    for name, x in given.items():
        dims = [at for at, axis in enumerate(an_op.whole.inputs[name].axes) if axis in axes]
        found[name] = x.narrow(dims[0], start, length) if dims else x
    return found


@pytest.mark.parametrize("name", DECODE)
def test_x1_the_same_bits_in_any_batch_and_any_split(name):
    """A batch is its members, and one call of three tokens is three calls of one."""
    kernel = op(name, backend="interpret")
    given = {**inputs(kernel, **LITTLE), "state_indices": torch.tensor([4, 0, 2])}
    alone, steps = given["state"].clone(), given["state"].clone()
    members = [kernel(**{**cut(kernel, given, ("B", "N"), n, 1), "state": alone}).o for n in range(3)]
    tokens = [kernel(**{**cut(kernel, given, ("T",), t, 1), "state": steps}).o for t in range(3)]
    out = kernel(**given)
    assert same_bits(torch.cat(members), out.o) and same_bits(alone, out.new_state)
    assert same_bits(torch.cat(tokens, dim=1), out.o) and same_bits(steps, out.new_state)


@pytest.mark.parametrize("name", DECODE)
def test_s7_a_sequence_without_a_slot(name):
    """A row past the end is refused on the CPU; the kernel, which on a GPU is all there is, skips it as it does -1."""
    kernel = op(name, backend="interpret")
    given = {**inputs(kernel, **LITTLE), "state_indices": torch.tensor([4, -1, -1])}
    for port, value in kernel.whole.inputs.items():
        if "T" in value.axes:
            given[port][1:] = float("nan")
    given["state"][:4] = float("nan")
    call = kernel.bind(given)
    o = replace(call, tensors={**call.tensors, "state_indices": torch.tensor([4, -1, 5])}).run()["o"]
    assert torch.isfinite(o).all() and not o[1:].any()
    assert torch.isnan(given["state"][:4]).all() and torch.isfinite(given["state"][4]).all()
