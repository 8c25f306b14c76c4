"""examples/host_cost.py: every column has its figure, and what is no measure says so."""

import importlib.util
from pathlib import Path

import pytest
import torch
from support.stand_in_driver import stand_in_driver

from chunkwise.runner import load

SCRIPT = Path(__file__).parents[1] / "examples" / "host_cost.py"


@pytest.fixture
def host_cost(monkeypatch):
    spec = importlib.util.spec_from_file_location("host_cost", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BURSTS", 2)
    monkeypatch.setattr(module, "CALLS", 2)
    return module


def rows(text):
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_table(device, host_cost, capsys):
    host_cost.main(["simple_gla", "gated_delta_decode", "--vs", "eager", "--device", device])
    text = capsys.readouterr().out
    found = rows(text)
    first, *us = found["simple_gla"]
    assert float(first) >= 0 and all(float(each) > 0 for each in us if each != "-")
    on_gpu = device == "cuda"
    assert found["simple_gla"].count("-") == (0 if on_gpu else 2)
    assert found["gated_delta_decode"].count("-") == (3 if on_gpu else 4)
    assert found["eager"] and ("no measure" in text) == (not on_gpu)


def test_launches_of_the_backward_pass(host_cost, monkeypatch):
    """As many as reach the launcher of a driver that stands in for a GPU's."""
    monkeypatch.setattr(host_cost, "load", lambda name, mode: load(name, backend="triton", mode=mode))
    with stand_in_driver() as driver:
        case = host_cost.case_of("simple_gla", torch.device("cpu"))
        found = host_cost.ours(case)
        given = host_cost.input_set(case)
        out = case.op(**given.inputs)
        driver.launches.clear()
        torch.autograd.grad([out.o, out.final_state], [given.inputs[name] for name in given.trainable],
                            [given.cotangents[name] for name in ("o", "final_state")], allow_unused=True)  # fmt: skip
        assert found.launches == len(driver.launches) > 1
        assert found.cells[4] == f"{found.backward / found.launches:.1f}"
