"""examples/bench_peers.py: what it runs, what it says of peers that are not there, the table at the end."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.records import BARE

from chunkwise.runner.benching.record import END_TO_END, What, Workload, line
from chunkwise.runner.commands._options import read_axes
from chunkwise.runner.main import make_parser
from chunkwise.runner.reporting.clocks import Timing
from chunkwise.runner.workloads import WORKLOADS

SCRIPT = Path(__file__).parents[1] / "examples" / "bench_peers.py"


@pytest.fixture
def bench_peers():
    spec = importlib.util.spec_from_file_location("bench_peers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bench_takes_its_commands(bench_peers):
    """At workloads that there are, with everything passed on."""
    found = [make_parser().parse_args(each) for each in bench_peers.commands("there", ["--no-gate"])]
    assert all(each.no_gate and each.out == "there" for each in found)
    assert all(each.vs == "fla,flashqla" + (",segments" if each.backward else "") for each in found)
    asked = [(name, size, each.backward) for each in found for name in each.pipelines
             for size in (each.workload or "").split(",")]  # fmt: skip
    assert all(size in WORKLOADS or not size for _, size, _ in asked) and len(asked) == 11
    assert sorted(read_axes(each.axes)["T"] for each in found if each.axes) == [32768, 65536]
    assert sum(backward for *_, backward in asked) == 3
    assert {name for name, *_ in asked} == {"gated_delta", "simple_gla", "gla", "kda"}


@pytest.mark.parametrize("there, said", [
    ({"fla-core": "0.6.0"},
     ["fla: fla-core 0.6.0", "flashqla: flash-qla is not installed; pip install flash-qla==0.1.3"]),
    ({"fla-core": "0.5.1", "flash-qla": "0.1.3"},
     ["fla: fla-core 0.5.1 is here, and 0.6.0 was measured; pip install fla-core==0.6.0 einops",
      "flashqla: flash-qla 0.1.3"]),
])  # fmt: skip
def test_what_is_missing_is_said_with_the_way_to_get_it(there, said, bench_peers, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench_peers, "installed", there.get)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(bench_peers, "run", lambda command: 0)
    assert bench_peers.main(["--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith(start) for line, start in zip(lines, said, strict=True)] == [True, True]


def test_without_a_gpu_that_is_all_that_is_said(bench_peers, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench_peers.main([]) == 3
    assert capsys.readouterr() == (
        "", "error[CW701]: the peers' kernels need a GPU, and there is none\n"
        "help: without one, chunkwise bench gated_delta --vs eager\n"
    )  # fmt: skip


def record(implementation, ms, backward=False, name="B1_T8192_H96_D128", mb=None, **axes):
    timing = None if ms is None else Timing(ms, ms, ms, 50, 0.1)
    what, workload = What("gated_delta", END_TO_END, "", "", implementation), Workload(name, axes, "bf16", "chunk",
                                                                                      None, backward)  # fmt: skip
    return replace(BARE, what=what, workload=workload, timing=timing, why="" if timing else "it failed", peak_mem_mb=mb)


def test_the_table_at_the_end(bench_peers, monkeypatch, tmp_path, capsys):
    records = [
        record("chunkwise triton", 0.8), record("chunkwise triton", 0.5), record("fla 0.6.0", 1.0),
        record("flashqla 0.1.3", None), record("chunkwise triton", 2.0, backward=True, mb=2136.4),
        record("segments of 43 chunks", 2.5, backward=True, mb=1348.0),
        record("flashqla 0.1.3", 1.0, backward=True),
        record("chunkwise triton", 0.125, name=None, B=1, T=32768, NT=512, H=4, HV=4, K=128),
    ]  # fmt: skip
    (tmp_path / "records.jsonl").write_text("".join(map(line, records)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    exits = iter([0, 1, 0, 0, 0])
    monkeypatch.setattr(bench_peers, "run", lambda command: next(exits))
    assert bench_peers.main(["--out", str(tmp_path)]) == 1
    *_, head, forward, both, long = capsys.readouterr().out.splitlines()
    names = "chunkwise ms (MB) segments ms (MB) fla ms (MB) flashqla ms (MB) x of fla x of flashqla"
    assert head.split() == names.split() and max(map(len, (head, both))) <= 160
    assert forward.split() == "gated_delta B1_T8192_H96_D128 forward 0.5000 - 1.0000 - 2.00 -".split()
    times = "2.0000 (2136) 2.5000 (1348) - 1.0000 - 0.50"
    assert both.split() == f"gated_delta B1_T8192_H96_D128 with gradients {times}".split()
    assert long.split() == "gated_delta B1_T32768_H4 forward 0.1250 - - - - -".split()


def test_a_ratio_is_of_one_thing(bench_peers):
    """Other lengths, dtypes and widths are other lines; a clock that shows 0 has no ratio."""
    ours, theirs = record("chunkwise triton", 0.0), record("fla 0.6.0", 1.0)
    packed, half, narrow = (
        replace(theirs, workload=replace(theirs.workload, **what))
        for what in (dict(seqlens=(5, 7)), dict(dtype="fp16"), dict(axes={"K": 64}))
    )
    _, *lines = bench_peers.summary([ours, theirs, packed, half, narrow])
    name = "gated_delta B1_T8192_H96_D128"
    assert [" ".join(line.split()) for line in lines] == [
        f"{name} forward 0.0000 - 1.0000 - - -", f"{name}, packed 5,7 forward - - 1.0000 - - -",
        f"{name}, fp16 forward - - 1.0000 - - -", f"{name} forward - - 1.0000 - - -",
    ]  # fmt: skip
