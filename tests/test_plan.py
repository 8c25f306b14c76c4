"""The cost of ranks that are not there: bytes and depth of the split graph, times by the machine's numbers."""

import json

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.commands.plan import COLUMNS
from chunkwise.runner.main import main
from chunkwise.runner.parallel.cost_model import Machine, as_reported, cost, device_of, factors_of

PAPER = Machine()
SIZES = dict(B=1, T=4096, H=2, HV=4, K=64, V=32)
STATE, MAP = 4 * 4 * 64 * 32, 4 * 4 * 64 * 64
"""Bytes of a rank's state and map: float32, 4 value heads."""


def planned(name, ranks, backward=True, machine=PAPER):
    return cost(load(name), SIZES, torch.bfloat16, ranks, machine, backward, {})


@pytest.mark.parametrize("name,sent", [("gated_delta", STATE + MAP), ("simple_gla", STATE + 4 * 4 * 64)])
def test_what_crosses_does_not_depend_on_the_length(name, sent):
    """Two ranks exchange states alone; more pass maps on. Backward there are cotangents of states, and no maps."""
    assert planned(name, 1).bytes == 0
    assert planned(name, 2).bytes == 2 * STATE
    assert planned(name, 8, backward=False).bytes == 7 * sent
    assert planned(name, 8).bytes == 7 * (sent + STATE)
    assert [planned(name, ranks).depth for ranks in (1, 2, 8)] == [0, 0, 14]


def test_the_link_counts_where_it_is_slow():
    fast, slow = (planned("gated_delta", 8, machine=Machine(link_gbps=gbps)) for gbps in (450, 1))
    assert slow.compute_ms == fast.compute_ms and slow.merge_ms == fast.merge_ms
    assert slow.link_ms - fast.link_ms == pytest.approx(slow.bytes * (1 - 1 / 450) / 1e6)


def test_work_is_shared_and_the_segment_comes_on_top():
    one, two = planned("gated_delta", 1), planned("gated_delta", 2)
    assert one.rows == 2 * two.rows and one.compute_ms / 2 < two.compute_ms < one.compute_ms


def test_a_report_gives_the_times_of_one_device(tmp_path, capsys):
    axes = "B=1,T=128,H=1,K=16,V=16"
    line = ["run", "simple_gla", "--axes", axes, "--device", "cpu", "--out", str(tmp_path)]
    assert main(line) == 0
    file = tmp_path / "simple_gla" / "report.json"
    report = json.loads(file.read_text())
    found = factors_of(load("simple_gla"), report, Machine(), torch.float32)
    sizes = {axis: report["axes"][axis] for axis in ("B", "T", "H", "HV", "K", "V")}
    again = cost(load("simple_gla"), sizes, torch.float32, 1, Machine(), False, found)
    assert again.total_ms == pytest.approx(report["sum_of_stages_ms"])
    capsys.readouterr()
    plan = ["plan", "simple_gla", "--axes", axes, "--ranks", "2..4", "--dtype", "fp32"]
    assert main([*plan, "--report", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["ranks"] for each in document["ranks"]] == [1, 2, 4] and document["measured"]
    assert document["ranks"][0]["total_ms"] == pytest.approx(report["sum_of_stages_ms"])
    assert main(["plan", "gated_delta", "--report", str(file)]) == 2
    assert "is not the report of a run of gated_delta on one device" in capsys.readouterr().err


def test_a_report_of_fused_stages(tmp_path, capsys):
    """What ran fused is modelled fused; the segment takes as much longer than on paper as the scan that it is of."""
    axes, fuse = "B=1,T=128,H=1,K=16,V=16", "chunk_h_o,chunk_h_o_grads"
    run = ["run", "simple_gla", "--axes", axes, "--device", "cpu", "--backward", "--fuse", fuse, "--out", str(tmp_path)]
    assert main(run) == 0
    file = tmp_path / "simple_gla" / "report.json"
    report = json.loads(file.read_text())
    op = as_reported(load("simple_gla"), report)
    assert op.fuse == fuse and device_of(report) == "cpu"
    found = factors_of(op, report, Machine(device="cpu"), torch.float32)
    assert found["scan"] == found["out"] and found["scan.vjp"] == found["out.vjp.grads"]
    capsys.readouterr()
    plan = ["plan", "simple_gla", "--axes", axes, "--dtype", "fp32", "--backward", "--report", str(file)]
    assert main([*plan, "--ranks", "2", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)["ranks"]
    assert one["total_ms"] == pytest.approx(report["sum_of_stages_ms"])
    assert one["notes"] == two["notes"] and one["notes"][0] == "out: chunk_h_o in place of scan, out"


def test_the_class_of_a_device():
    assert device_of({"environment": {"compute_capability": "9.0"}}) == "sm_90"


def test_what_is_planned_is_fused(capsys):
    """On an H200 by default, at sizes that the kernels there take, and said so."""
    assert main("plan gated_delta --axes T=4096 --ranks 2".split()) == 0
    assert "note: out: chunk_delta_o in place of wy, scan, out" in capsys.readouterr().out
    assert main("plan kda --ranks 2..4".split()) == 0
    said = capsys.readouterr().out
    assert "note, ranks 1: out: chunk_delta_wy_o_k in place of wy, scan, out" in said
    assert "note, ranks 2 to 4: out: chunk_delta_wy_o_k not in place of wy, scan, out: it does not say how" in said
    assert main("plan gated_delta --axes T=4096 --ranks 2 --fuse none".split()) == 0
    assert "in place of" not in capsys.readouterr().out
    assert main("plan gated_delta --axes T=4096,K=256 --ranks 2".split()) == 0
    assert "chunk_delta_o not in place of wy, scan, out: K = 256: on sm_90 64 or 128" in capsys.readouterr().out


def test_the_table(capsys):
    assert main(["plan", "gated_delta", "--axes", "B=1,T=524288,H=16", "--backward"]) == 0
    text = capsys.readouterr().out
    assert "".join(f"{line}\n" for line in COLUMNS) in text and max(map(len, COLUMNS)) <= 120
    assert " 1024 " in text and "each rank is worth 50 % of one alone up to 32 ranks; fastest on 64" in text
    assert main("plan gated_delta --axes T=100".split()) == 0
    text = capsys.readouterr().out
    assert "on no more ranks than one is each worth 50 % of one alone; fastest on 1" in text


@pytest.mark.parametrize("ranks", ["0", "8..2", "x", "2.."])
def test_ranks_that_are_none(ranks, capsys):
    assert main(["plan", "gated_delta", "--ranks", ranks]) == 2
    assert "--ranks" in capsys.readouterr().err
