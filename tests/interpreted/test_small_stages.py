"""short_conv, gated_rms_norm and softmax_k on their kernels: gradients, states, borders, hard inputs."""

import pytest
import torch
from support.one_stage import stage_inputs, stage_op
from support.ops import check, same_bits

SIZES = dict(B=2, H=2, K=20, HV=2, V=24)


def sizes_of(op, **sizes):
    return {axis: size for axis, size in {**SIZES, **sizes}.items() if axis in op.whole.axis_names}


@pytest.mark.parametrize("T", [1, 3, 19])
@pytest.mark.parametrize("W", [2, 3, 4])
def test_conv_gradients(tmp_path, W, T):
    op = stage_op(tmp_path, "short_conv", backend="interpret")
    check(op, stage_inputs(op, **sizes_of(op, T=T, W=W)), backward=True)


@pytest.mark.parametrize("name", ["short_conv", "gated_rms_norm", "softmax_k"])
def test_packed_gradients(tmp_path, name):
    """Sequences shorter than the convolution, empty ones, and rows past the last."""
    op = stage_op(tmp_path, name, backend="interpret")
    lengths = (0, 1, 5, 0, 2, 17, 0)
    given = stage_inputs(op, seqlens=lengths, **sizes_of(op, B=1, T=sum(lengths) + 3, W=4))
    check(op, given, seqlens=lengths, backward=True)


def test_conv_in_two_parts_is_the_whole(tmp_path):
    op = stage_op(tmp_path, "short_conv", backend="interpret")
    given = stage_inputs(op, **sizes_of(op, T=11, W=4))
    whole = op(**given)
    for cut in (2, 7):
        first = op(**{**given, "x": given["x"][:, :cut]})
        rest = op(**{**given, "x": given["x"][:, cut:], "initial_state": first.final_state})
        assert same_bits(torch.cat([first.y, rest.y], 1), whole.y) and same_bits(rest.final_state, whole.final_state)


def test_conv_packed_is_each_alone(tmp_path):
    op, lengths = stage_op(tmp_path, "short_conv", backend="interpret"), (3, 0, 18, 1)
    given = stage_inputs(op, seqlens=lengths, **sizes_of(op, B=1, T=sum(lengths), W=4))
    packed, row = op(**given, seqlens=lengths), 0
    for n, length in enumerate(lengths):
        part = {"x": given["x"][:, row : row + length], "initial_state": given["initial_state"][n : n + 1]}
        alone = op(**{**given, **part})
        assert same_bits(packed.y[:, row : row + length], alone.y)
        assert same_bits(packed.final_state[n : n + 1], alone.final_state)
        row += length


def test_gradient_of_the_final_state_alone(tmp_path):
    op = stage_op(tmp_path, "short_conv", backend="interpret")
    given = {name: x.requires_grad_() for name, x in stage_inputs(op, **sizes_of(op, T=2, W=4)).items()}
    op(**given).final_state.sum().backward()
    assert given["x"].grad.eq(1).all()
    assert given["weight"].grad.eq(0).all() and given["bias"].grad.eq(0).all()
    assert given["initial_state"].grad.sum(dim=(0, 2, 3)).gt(0).tolist() == [False, False, True, True]


def test_conv_causes_nothing_before_it(tmp_path):
    op = stage_op(tmp_path, "short_conv", backend="interpret")
    given = stage_inputs(op, **sizes_of(op, T=9, W=4))
    changed = given["x"].clone()
    changed[:, 5:] = 1e30
    assert same_bits(op(**{**given, "x": changed}).y[:, :5], op(**given).y[:, :5])


def test_other_widths_are_refused_by_the_kernel(tmp_path):
    op = stage_op(tmp_path, "short_conv", backend="interpret")
    with pytest.raises(Exception, match="W = 5: 2, 3 or 4"):
        op(**stage_inputs(op, **sizes_of(op, T=9, W=5)))


@pytest.mark.parametrize("K", [1, 16, 100, 256])
def test_softmax_of_large_numbers(tmp_path, K):
    op = stage_op(tmp_path, "softmax_k", backend="interpret")
    x = 1e4 * torch.randn(1, 5, 2, K, generator=torch.Generator().manual_seed(0))
    y = op(x=x).y
    assert torch.allclose(y, torch.softmax(x.double(), -1).float(), atol=1e-6) and y.ge(0).all()


@pytest.mark.parametrize("V", [8, 100, 256])
def test_norm_widths(tmp_path, V):
    op = stage_op(tmp_path, "gated_rms_norm", backend="interpret")
    check(op, stage_inputs(op, **sizes_of(op, T=5, V=V)), backward=True)


def test_norm_of_zeros_and_gates_far_out(tmp_path):
    op = stage_op(tmp_path, "gated_rms_norm", backend="interpret")
    given = stage_inputs(op, **sizes_of(op, T=3))
    given["o"][:, 0] = 0
    given["z"][:, 1] = -1e4
    leaves = {name: x.requires_grad_() for name, x in given.items()}
    y = op(**leaves).y
    y.sum().backward()
    assert y[:, :2].eq(0).all() and all(x.grad.isfinite().all() for x in leaves.values())
