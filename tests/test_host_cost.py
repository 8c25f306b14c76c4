"""examples/host_cost.py and first_call.py: every column has its figure, and what is no measure says so."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.stand_in_driver import stand_in_driver

from chunkwise.runner import load
from chunkwise.runner.commands import warmup
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.launching.compile_ahead import compile_ahead

EXAMPLES = Path(__file__).parents[1] / "examples"
FIRST_CALL = EXAMPLES / "first_call.py"


def loaded(script):
    spec = importlib.util.spec_from_file_location(script.stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def host_cost(monkeypatch):
    module = loaded(EXAMPLES / "host_cost.py")
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


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_first_calls(device):
    """Goal of issue 7: 5 s at most, and other sizes of the same widths compile nothing."""
    workload = "tiny" if device == "cpu" else "B1_T8192_H96_D128"
    words = ["gated_delta", "--workload", workload, "--device", device]
    done = subprocess.run([sys.executable, FIRST_CALL, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seconds, kernels = zip(*re.findall(r"([\d.]+) s, +(\d+)", done.stdout))
    assert len(seconds) == len(loaded(FIRST_CALL).LAPS) and all(0 <= float(each) < 30 for each in seconds)
    if device == "cpu":
        assert set(kernels) == {"0"} and "nothing is compiled" in done.stdout
    else:
        forward, both, lengths, heads = map(int, kernels)
        assert float(seconds[0]) <= 5 and forward and both and not lengths and heads < 3


@pytest.mark.parametrize("name", ["gated_delta", "kda"])
def test_other_lengths_ask_for_no_other_kernel(name):
    """On an H200, at the sizes of the example; a driver that stands in for a GPU's counts."""
    module, device = loaded(FIRST_CALL), torch.device("cuda", 0)
    case = module.case_of(name, "B1_T8192_H96_D128", torch.device("cpu"))
    with stand_in_driver() as driver:
        op, asked = load(name, backend="triton"), []
        for sizes in (case.sizes, complete(op.whole, module.other_lengths(case.sizes))):
            call = warmup.bare_call(op, sizes, None, torch.bfloat16, device, ())
            assert compile_ahead(warmup.all_launches(call, backward=True)) == []
            asked.append(len(driver.compiled))
        assert 0 < asked[0] == asked[1]


def test_what_comes_into_the_cache_is_counted(tmp_path, monkeypatch):
    module = loaded(FIRST_CALL)
    monkeypatch.setenv(module.CACHE, str(tmp_path))
    for number in range(2):
        folder = tmp_path / str(number)
        run = lambda: [folder.mkdir(), (folder / "a.cubin").touch(), (folder / "a.json").touch()]  # noqa: B023, E731
        assert module.lap(run, torch.device("cpu")).kernels == 1
    assert module.lap(lambda: None, torch.device("cpu")).kernels == 0


def test_a_peer_that_is_not_there_is_a_row(tmp_path, monkeypatch, capsys):
    module = loaded(FIRST_CALL)
    monkeypatch.setenv(module.CACHE, str(tmp_path))
    monkeypatch.setattr(module, "in_own_process", module.laps)
    module.main(["linear_attn", "--workload", "tiny", "--vs", "fla,eager", "--device", "cpu"])
    found = rows(capsys.readouterr().out)
    assert found["fla"] == "Inapplicable: fla's kernels need a GPU".split() and len(found["eager"]) == 12


def test_a_pipeline_that_there_is_not(capsys):
    assert loaded(EXAMPLES / "host_cost.py").main(["nope", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.startswith("error[CW101]: ")
