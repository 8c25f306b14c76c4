"""Gradients of the kernels through autograd: where the same bits come out (X1, X4), and what stays out (V4, E10).

The gradients of constants per head sum over samples, and have no sample of their own.
"""

import pytest
import torch
from support.ops import inputs, op, same_bits

SIZES = dict(T=19, H=1, HV=2, K=16, V=12)
NAMES = ["simple_gla", "qwen3_next_gdn"]
"""The second is the whole of gated_delta, with its gate, its norms and its sigmoid."""


def batched(kernel):
    return [name for name, value in kernel.whole.inputs.items() if {"B", "N"} & set(value.axes)]


def part(kernel, given, d, samples):
    """Gradients of the first samples alone."""
    names = batched(kernel)
    leaves = {name: (x[:samples] if name in names else x).clone().requires_grad_() for name, x in given.items()}
    out = kernel(**leaves)
    torch.autograd.backward([out.o, out.final_state], [d["o"][:samples], d["final_state"][:samples]])
    return {name: leaves[name].grad for name in names}


def cotangents(kernel, given, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(x.shape, generator=generator) for name, x in kernel(**given)._asdict().items()}


@pytest.mark.parametrize("name", NAMES)
def test_x1_batches_of_1_4_and_8(name):
    kernel = op(name, 16, "interpret")
    given = inputs(kernel, B=8, **SIZES | dict(HV=1))
    d = cotangents(kernel, given, 0)
    results = {B: part(kernel, given, d, B) for B in (1, 4, 8)}
    for B in (4, 8):
        for each, x in results[B].items():
            assert same_bits(x[:1], results[1][each]), each


@pytest.mark.parametrize("name", [*NAMES, "kda"])
def test_x4_other_samples_change(name):
    kernel, names = op(name, 16, "interpret"), batched(op(name, 16, "interpret"))
    given, others = inputs(kernel, B=2, **SIZES), inputs(kernel, B=2, seed=1, **SIZES)
    mixed = {n: torch.cat([given[n][:1], others[n][1:]]) if n in names else given[n] for n in given}
    d, other_d = cotangents(kernel, given, 0), cotangents(kernel, given, 1)
    mixed_d = {n: torch.cat([d[n][:1], other_d[n][1:]]) for n in d}
    one, two = part(kernel, given, d, 2), part(kernel, mixed, mixed_d, 2)
    for each in one:
        assert same_bits(one[each][:1], two[each][:1]), each
        assert not torch.equal(one[each][1:], two[each][1:]), each


@pytest.mark.parametrize("name", [*NAMES, "kda"])
def test_v4_rows_past_the_end(name):
    """Whatever they and their output gradients hold, every gradient keeps its bits, and theirs is 0."""
    kernel, lengths, tokens = op(name, 16, "interpret"), (17, 0, 2), 19
    given = inputs(kernel, seqlens=lengths, **dict(SIZES, T=24))
    timed = [each for each in given if "T" in kernel.whole.inputs[each].axes]
    found = []
    for poison in (0.0, torch.nan, 1e30):
        leaves = {each: x.clone() for each, x in given.items()}
        d_o = torch.randn(1, 24, 2, 12, generator=torch.Generator().manual_seed(0))
        for x in (*(leaves[each] for each in timed), d_o):
            x[:, tokens:] = poison
        out = kernel(**{each: x.requires_grad_() for each, x in leaves.items()}, seqlens=lengths)
        assert not out.o[:, tokens:].any()
        torch.autograd.backward([out.o, out.final_state], [d_o, torch.ones_like(out.final_state)])
        found.append({each: x.grad for each, x in leaves.items()})
    for each in given:
        assert same_bits(found[0][each], found[1][each]) and same_bits(found[0][each], found[2][each]), each
        assert each not in timed or not found[0][each][:, tokens:].any(), each


@pytest.mark.parametrize("empty", [dict(T=0), dict(B=0)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_e10_nothing_there(name, empty):
    kernel = op(name, 16, "interpret")
    given = {each: x.requires_grad_() for each, x in inputs(kernel, **{"B": 2, **SIZES, **empty}).items()}
    out = kernel(**given)
    assert same_bits(out.final_state.detach(), given["initial_state"].detach())
    torch.autograd.backward([out.o, out.final_state], [torch.ones_like(out.o), torch.ones_like(out.final_state)])
    for each, x in given.items():
        assert torch.equal(x.grad, (torch.ones_like if each == "initial_state" else torch.zeros_like)(x)), each


@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_one_gradient_at_a_time(name):
    """Kernels that are asked for some of their outputs give the bits that they give for all."""
    kernel = op(name, 16, "interpret")
    given = inputs(kernel, B=1, **dict(SIZES, T=17))
    d = cotangents(kernel, given, 0)
    for output in ("o", "final_state"):
        both = {each: x.clone().requires_grad_() for each, x in given.items()}
        getattr(kernel(**both), output).backward(d[output])
        for each in given:
            alone = {n: x.clone().requires_grad_(n == each) for n, x in given.items()}
            result = getattr(kernel(**alone), output)
            if both[each].grad is None:
                assert not result.requires_grad
                continue
            result.backward(d[output])
            assert same_bits(alone[each].grad, both[each].grad), (output, each)
