"""Inputs are never written: a stage of one's own that does so is named, and what the caller holds stays."""

from pathlib import Path

import pytest
import torch
from support.twice import PIPELINE, STAGE

from chunkwise.runner import load
from chunkwise.runner.diagnostics.errors import ChunkwiseError
from chunkwise.runner.verification.staged import same_bits
from chunkwise.runner.verification.verify import verify

WRITES = {
    "in place": ("2 * x}", "x.mul_(2)}", "reference", "x", 8),
    "through a view": ("2 * x}", "x[:].mul_(2)}", "reference", "x", 8),
    "by out=": ("2 * x}", "torch.mul(x, 2, out=x)}", "reference", "x", 8),
    "in a vjp": ("2 * d_y}", "d_y.mul_(2)}", "vjp", "d_y", 12),
}


@pytest.fixture
def op(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(old, new):
        assert STAGE.count(old) == 1
        text = STAGE.replace(old, new).replace("from chunk", "import torch\nfrom chunk", 1)
        Path("twice.py").write_text(text)
        Path("op.yaml").write_text(PIPELINE)
        return load("op.yaml", stages=[tmp_path])

    return make


def refused(do, function, port, line):
    with pytest.raises(ChunkwiseError) as caught:
        do()
    [found] = caught.value.diagnostics
    message = f"{function} of twice writes its input {port}, and inputs are never written"
    assert found.code == "CW506" and found.message.endswith(message)
    assert (Path(found.mark.file).name, found.mark.line) == ("twice.py", line + 1)


@pytest.mark.parametrize("seqlens", [None, (3, 0, 2)], ids=["plain", "packed"])
@pytest.mark.parametrize("old, new, function, port, line", WRITES.values(), ids=WRITES)
def test_a_call_raises(op, old, new, function, port, line, seqlens):
    x = torch.ones(1, 5, 2, requires_grad=function == "vjp")
    one = op(old, new)
    refused(lambda: one(x=x, seqlens=seqlens).y.sum().backward(), function, port, line)


@pytest.mark.parametrize("io", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("old, new, function, port, line", WRITES.values(), ids=WRITES)
def test_verify_keeps_what_the_caller_holds(op, old, new, function, port, line, io):
    x, one = torch.ones(1, 5, 2, dtype=io), op(old, new)
    refused(lambda: verify(one, {"x": x}, backward=True), function, port, line)
    assert torch.equal(x, torch.ones_like(x))


def test_inference_tensors_are_copied(op):
    """They do not count what is written to them."""
    with torch.inference_mode():
        x = torch.ones(1, 5, 2)
        y = op("2 * x}", "x.mul_(2)}")(x=x).y
    assert torch.equal(x, torch.ones_like(x)) and torch.equal(y, 2 * x)


def test_verify_sees_what_no_counter_counts(op):
    with pytest.raises(ChunkwiseError) as caught:
        verify(op("2 * x}", "x.data.mul_(2)}"), {"x": torch.ones(1, 5, 2)})
    assert "one (twice, reference) writes its input x" in str(caught.value)


def test_a_stage_that_only_reads(op):
    one = op("2 * x}", "x + x}")
    x = torch.ones(1, 5, 2, requires_grad=True)
    one(x=x).y.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))


def test_one_number_of_a_wide_row_has_the_bits_that_it_has():
    """PyTorch shows no tensor in bytes whose only number has a stride."""
    row = torch.zeros(2, 64)[:1, :1].t()
    assert same_bits(row, row.clone()) and not same_bits(row, -row)
