"""What kernels read and write: memory beside their tensors (E1), sizes (E2, E7, E9), what was asked for (L12)."""

import pytest
import torch
from support.guarded import Guarded
from support.ops import OPS, check, inputs, op, refusal

from chunkwise.runner.diagnostics import codes
from chunkwise.runner.planning.execute import execute

WIDTHS = [(48, 60, None), (100, 48, (0, 17, 1)), (8, 3, (0, 17, 1))]
GUARDED = [(name, *widths) for name in ("simple_gla", "qwen3_next_gdn") for widths in WIDTHS]
GUARDED += [(name, 20, 12, (0, 17, 1)) for name in ("gla", "kda_bounded", "mamba2")]


@pytest.mark.parametrize("name,K,V,seqlens", GUARDED)
def test_e1_nan_beside_every_tensor(name, K, V, seqlens):
    """Inputs, edges, scratch and outputs each lie between nan: nothing leaks in, and nobody writes beside his own."""
    kernel, guarded = op(name, 16, "interpret"), Guarded()
    given = inputs(kernel, seqlens=seqlens, B=1, T=18, H=1, HV=2, K=K, V=V)
    call = kernel.bind({each: guarded.holding(x) for each, x in given.items()}, None, seqlens)
    found = execute(call.forward_plan(), call.contiguous, call.params, call.seqs, make=guarded)
    assert guarded.unhurt()
    plain = kernel(**given, seqlens=seqlens)
    for each, x in found.items():
        assert torch.equal(x, getattr(plain, each)) and x.isfinite().all()


@pytest.mark.parametrize("K,V", [(96, 128), (160, 128), (192, 128), (256, 128)])
@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_e2_long_keys(name, K, V):
    kernel = op(name, 16, "interpret")
    check(kernel, inputs(kernel, B=1, T=17, H=1, HV=1, K=K, V=V))


@pytest.mark.parametrize("sizes", [dict(K=300), dict(V=257)], ids=str)
@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_e2_too_long_is_refused_by_name(name, sizes):
    kernel = op(name, 16, "interpret")
    found = refusal(kernel, **inputs(kernel, B=1, T=17, **sizes))
    ((axis, size),) = sizes.items()
    assert {each.code for each in found} == {codes.SIZE}
    assert all(f"{axis} = {size}: at most 256" in each.message for each in found)


@pytest.mark.parametrize("T", [1, 2, 8])
@pytest.mark.parametrize("name", ["simple_gla", "qwen3_next_gdn"])
def test_e7_tiny(name, T):
    kernel = op(name, 16, "interpret")
    check(kernel, inputs(kernel, B=2, T=T, H=1, HV=2, K=8, V=8))


@pytest.mark.parametrize("C", [8, 40, 50, 256])
@pytest.mark.parametrize("name", OPS)
def test_e9_chunk_lengths_that_no_kernel_takes(name, C):
    kernel = op(name, C, "interpret")
    found = refusal(kernel, **inputs(kernel, B=1))
    assert {each.code for each in found} == {codes.SIZE}
    assert all(f"C = {C}: a power of two from 16 to 128" in each.message for each in found)


@pytest.mark.parametrize("empty", [dict(T=0), dict(B=0)], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_e10_nothing_there(name, empty):
    kernel = op(name, 16, "interpret")
    given = inputs(kernel, K=16, V=16, **empty)
    out = kernel(**given)
    assert out.o.numel() == 0 and torch.equal(out.final_state, given["initial_state"])


@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_l12_inputs_stay_as_they_are_and_outputs_have_their_effect(name):
    kernel = op(name, 16, "interpret")
    given = inputs(kernel, B=1, T=19, H=1, HV=2, K=16, V=24)
    before = {each: x.clone() for each, x in given.items()}
    whole = kernel(**given)
    assert all(torch.equal(before[each], x) for each, x in given.items())
    only = kernel(**given, outputs=["o"])
    assert only.final_state is None and torch.equal(only.o, whole.o)
    only = kernel(**given, outputs=["final_state"])
    assert only.o is None and torch.equal(only.final_state, whole.final_state)
