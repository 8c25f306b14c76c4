"""The key of a call: what it tells apart, and the calls that have none. A known call's neighbours are still checked."""

import numpy
import pytest
import torch
from support.ops import inputs

from chunkwise.runner import load
from chunkwise.runner.calling.signature import signature
from chunkwise.runner.diagnostics.errors import ChunkwiseError

X = torch.zeros(2, 3)


def key(x=X, cu_seqlens=None, seqlens=None, outputs=None, **given):
    return signature({"x": x, **given}, cu_seqlens, seqlens, outputs)


@pytest.mark.parametrize("other", [
    dict(x=torch.zeros(3, 2)), dict(x=X.half()), dict(x=torch.zeros(2, 3, device="meta")), dict(x=None), dict(x=1.0),
    dict(y=X), dict(scale=0.5), dict(scale=0.25), dict(seqlens=[2, 1]), dict(seqlens=(1, 2)), dict(outputs=["o"]),
    dict(outputs=[]),
], ids=str)  # fmt: skip
def test_told_apart(other):
    assert None is not key(**other) != key() is not None


@pytest.mark.parametrize("same", [
    dict(x=torch.ones(2, 3)), dict(x=torch.nn.Parameter(X)), dict(x=torch.zeros(3, 2).mT),
], ids=["values", "a parameter", "strides"])  # fmt: skip
def test_the_same(same):
    assert key(**same) == key()
    assert hash(key(**same)) == hash(key())


class Mine(torch.Tensor):
    pass


@pytest.mark.parametrize("other", [
    dict(x=X.as_subclass(Mine)), dict(x=X.to_sparse()), dict(x="text"), dict(x=True), dict(scale=numpy.float32(0.5)),
    dict(seqlens=[1, True]), dict(seqlens=torch.tensor([1, 2])), dict(seqlens=range(3)), dict(seqlens=[1.0]),
    dict(cu_seqlens=torch.tensor([0, 3])), dict(cu_seqlens=torch.tensor([0, 3]), seqlens=[3]), dict(outputs="o"),
    dict(outputs=[1]), dict(outputs={"o"}),
], ids=str)  # fmt: skip
def test_looked_at_each_time(other):
    assert key(**other) is None


def test_neighbours_of_a_known_call():
    op = load("gated_delta")
    given = inputs(op, B=1, T=20, K=8, V=8)
    for _ in range(2):
        op(**given)
        with pytest.raises(ChunkwiseError, match=r"v \[B T HV V\] has T = 19, q has 20"):
            op(**{**given, "v": given["v"][:, :19]})
        with pytest.raises(ChunkwiseError, match="must be fp32"):
            op(**{**given, "g": given["g"].double()})
        with pytest.raises(ChunkwiseError, match="must be finite"):
            op(**given, scale=float("nan"))
        with pytest.raises(ChunkwiseError, match="the sequences have 21 tokens"):
            op(**{**given, "initial_state": None}, seqlens=[21])
    assert len(op.known.items) == 1


def test_a_known_call_of_states_is_still_looked_at_where_they_lie():
    op = load("gated_delta_decode")
    given = inputs(op, B=2, K=8, V=8)
    for _ in range(2):
        op(**given)
    own = given["state"]
    with pytest.raises(ChunkwiseError, match="must be contiguous"):
        op(**{**given, "state": own.mT.contiguous().mT})
