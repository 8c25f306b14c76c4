"""Examples about attention: the shapes that are verified, and the sweeps, whose every cell has a figure or a reason."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

from chunkwise.runner.reporting import clocks

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(monkeypatch):
    """Loads one; clocks do not look long."""
    monkeypatch.setattr(clocks, "SECONDS", 0.01)

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def tables(text):
    """Lists of rows; a row is its cells."""
    found = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    return [[line.strip("| ").split(" | ") for line in each.splitlines()] for each in found]


def test_the_four_shapes(example, capsys):
    """Tokens and widths 64 times smaller; the real ones run in tests/gpu/test_flash.py."""
    assert example("attention_shapes").main(["--divide", "64", "--vs", "sdpa", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    for B, HQ, H, N in ((2, 32, 8, 16), (1, 64, 8, 64), (1, 32, 32, 8), (1, 16, 1, 8)):
        assert f"B={B}, Sq={N}, HQ={HQ}, D=16, Sk={N}, H={H}" in out
    assert out.count("tensors within budget") == 4 and "d_q" in out and out.count("sdpa math") == 16


def test_a_wrong_shape_is_an_exit_code(example, monkeypatch):
    module, codes = example("attention_shapes"), iter([0, 1, 0, 0])
    monkeypatch.setattr(module, "chunkwise", lambda argv: next(codes))
    assert module.main([]) == 1


def test_the_sweep_of_attention(example, capsys):
    options = ["--heads", "2", "--key-heads", "1", "--width", "16", "--lengths", "8,24", "--device", "cpu"]
    example("attention_sweep").main(options)
    out = capsys.readouterr().out
    found = tables(out)
    assert len(found) == 4
    for (head, _, *rows), timed in zip(found, (True, False, True, False)):
        assert head == ["tokens", "chunkwise", "sdpa", "cudnn", "flex", "eager"]
        assert [row[0] for row in rows] == ["8", "24"] and all(row[3] == row[4] == "-" for row in rows)
        assert all((float(row[at]) > 0) if timed else row[at] == "-" for row in rows for at in (1, 2, 5))
    assert "flex, forward, 8 tokens: FlexAttention is compiled for a GPU" in out and "no measure of the kernels" in out


def test_what_finds_no_memory_is_a_cell(example, monkeypatch, capsys):
    module = example("attention_sweep")

    def eager(given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(module, "eager", eager)
    module.main(["--heads", "1", "--width", "16", "--lengths", "8", "--device", "cpu", "--vs", ""])
    assert [each[2][2] for each in tables(capsys.readouterr().out)] == ["out of memory"] * 4


def test_eager_is_the_op(example):
    module = example("attention_sweep")
    case = module.Setting(4, 2, 16, torch.device("cpu")).case(20, backward=True)
    given = module.input_set(case)
    found, right = (module.run_once(forward, given) for forward in (module.eager, module.ours(case)))
    assert found.keys() == {"o", "d_q", "d_k", "d_v"} == {name for name, x in right.items() if x is not None}
    for name, x in found.items():
        torch.testing.assert_close(x, right[name], rtol=1e-4, atol=1e-5)


def test_the_sweep_of_latent_attention(example, capsys, monkeypatch):
    module = example("mla_sweep")
    timed = module.time_call

    def time_call(call):
        if call.graph.name == "mla_naive" and call.sizes["Sk"] == 40:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return timed(call)

    monkeypatch.setattr(module, "time_call", time_call)
    module.main(["--contexts", "16,40", "--batches", "2", "--heads", "2", "--device", "cpu"])
    ((head, _, *rows),) = tables(capsys.readouterr().out)
    assert [row[:3] for row in rows] == [["2", T, name] for T in ("16", "40") for name in module.PIPELINES]
    full = [float(row[3]) > float(row[4]) > 0 for row in rows if "memory" not in row[3]]
    assert full == [True] * 5 and rows[3][3] == "out of memory"


def test_the_least_that_attention_over_a_latent_takes(example):
    """At 64 sequences of 16,384 tokens and 128 heads: the products bind; with one head the bytes."""
    module = example("mla_sweep")
    rates = module.DeviceRates(4240.0, 700.0, 0.004, 2**25, "bf16")
    assert module.Point(64, 16384, 128, torch.device("cpu")).least_ms(rates) == pytest.approx(0.417, abs=1e-3)
    assert module.Point(64, 16384, 1, torch.device("cpu")).least_ms(rates) == pytest.approx(0.285, abs=1e-3)
