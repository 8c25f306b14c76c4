"""A gradient that is several stages: which there are, what they read, and that they are the gradient."""

import pytest
import torch
from support.attention import BARE, LITTLE
from support.ops import inputs, op

FLASH = op("flash")
PARTS = ["attend.vjp.preprocess", "attend.vjp.dkdv", "attend.vjp.dq"]


def backward(wanted, absent=()):
    graph = FLASH.joint_graph(frozenset(absent), frozenset(wanted), frozenset({"o"}))
    return [node for node in graph.nodes.values() if node.phase == "backward"]


@pytest.mark.parametrize(
    "wanted,there",
    [("qkv", PARTS), ("q", [PARTS[0], PARTS[2]]), ("v", PARTS[:2]), (["sinks"], PARTS[:1])],
    ids=["all", "q", "v", "sinks"],
)
def test_only_what_is_needed(wanted, there):
    assert [node.id for node in backward(wanted)] == there


def test_nothing_is_made_that_nobody_reads():
    preprocess, dkdv, _ = backward("qk")
    assert dict(preprocess.outputs) == {"delta": "attend.vjp.preprocess.delta"}
    assert dict(dkdv.outputs) == {"d_k": "attend.vjp.d_k"}
    assert dkdv.inputs["delta"] == "attend.vjp.preprocess.delta" and dkdv.inputs["d_o"] == "d(o)"
    assert (dkdv.inputs["sequence"], dkdv.params["scale"]) == (None, "scale")
    assert backward("q", absent=("sinks",))[0].inputs["sinks"] is None


@pytest.mark.parametrize("name", ["flash", "flash_decode"])
@pytest.mark.parametrize("outputs", [("o",), ("lse",), ("o", "lse")], ids=str)
def test_the_gradient_is_autograds(name, outputs):
    """Of a loss on either output alone, too."""
    given = inputs(op(name), torch.float64, Sq=7, Sk=9, absent=BARE, **LITTLE)
    leaves = {each: given[each].clone().requires_grad_() for each in "qkv"}
    q, k, v = (leaves[each].transpose(1, 2) for each in "qkv")
    s = (q @ k.mT / 4).masked_fill(torch.arange(9) > torch.arange(7)[:, None] + 2, -torch.inf)
    right = {"o": (torch.softmax(s, -1) @ v).transpose(1, 2), "lse": torch.logsumexp(s, -1).transpose(1, 2)}
    found = op(name)(**given | leaves)
    for x, y in zip(*(gradients(each, outputs, leaves) for each in (right, found._asdict()))):
        assert (x is None) == (y is None)
        if x is not None:
            torch.testing.assert_close(y, x, rtol=1e-10, atol=1e-12)


def gradients(results, outputs, leaves):
    loss = sum(results[name].cos().sum() for name in outputs)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return [None if x is None or not x.any() else x for x in found]
