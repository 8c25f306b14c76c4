"""A result that a stage of one's own does not give is an error that names it: no call passes on unwritten memory."""

import pytest
import torch
from support.ops import refusal
from support.twice import PIPELINE

from chunkwise.runner import load
from chunkwise.runner.diagnostics import codes
from chunkwise.runner.verification.verify import verify

STAGE = '''\
"""Its input, twice."""

from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(
    inputs={"x": Port("B T HV")}, outputs={"y": Port("B T HV"), "z": Port("B T HV", optional=True)}, flops="B * T * HV"
)


def reference(x):
    return {"y": 2 * x, "z": x}


def vjp(d_y, *, needs):
    return {"x": 2 * d_y}
'''
NONE = {
    "an output": ('"y": 2 * x', '"y": None', "reference of twice gives None for y, which the contract does not mark"),
    "a gradient": ('"x": 2 * d_y', '"x": None', "vjp of twice gives None for x, which needs asks for"),
}


@pytest.fixture
def op(tmp_path):
    def make(old, new, pipeline=PIPELINE):
        assert STAGE.count(old) == 1
        (tmp_path / "twice.py").write_text(STAGE.replace(old, new))
        (tmp_path / "op.yaml").write_text(pipeline)
        return load(tmp_path / "op.yaml", stages=[tmp_path])

    return make


@pytest.mark.parametrize("how", ["call", "packed", "verify"])
@pytest.mark.parametrize("old, new, message", NONE.values(), ids=NONE)
def test_none_for_what_is_wanted(op, old, new, message, how):
    one, x = op(old, new), torch.ones(1, 5, 2, requires_grad=True)
    seqlens = (3, 2) if how == "packed" else None
    runs = lambda: one(x=x, seqlens=seqlens).y.sum().backward()  # noqa: E731
    checks = lambda: verify(one, {"x": x.detach()}, backward=True)  # noqa: E731
    [found] = refusal(checks if how == "verify" else runs)
    assert found.code == codes.STAGE_FAILED and message in found.message and found.mark.file.endswith("twice.py")


def test_an_optional_output_may_be_none(op):
    one = op('"z": x', '"z": None', PIPELINE.replace("one.y}", "one.y, z: one.z}").replace("2 * x]", "2 * x, z = x]"))
    x = torch.ones(1, 5, 2)
    out = one(x=x)
    assert torch.equal(out.y, 2 * x) and out.z is None
    assert one(x=x, seqlens=(3, 2)).z is None
