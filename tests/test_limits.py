"""Floors, what binds, occupancy, bytes: pure figures, held against figures worked out by hand; and the kept rates."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from chunkwise.runner import load
from chunkwise.runner.benching import device_rates
from chunkwise.runner.benching.device_rates import DeviceRates
from chunkwise.runner.benching.gap import gap_notes
from chunkwise.runner.benching.kernels import Room, occupancy_pct
from chunkwise.runner.benching.limits import COMPUTE, LATENCY, MEMORY, impossible, limits
from chunkwise.runner.benching.machine import Machine
from chunkwise.runner.benching.measure import faults, impossible_at
from chunkwise.runner.benching.stage_clock import sum_of
from chunkwise.runner.benching.traffic import edges, op_bytes
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.reporting.clocks import Timing
from chunkwise.runner.verification.generate import make_inputs

RATES = DeviceRates(copy_gbps=4000.0, matrix_tflops=800.0, launch_ms=0.003, cache_bytes=50 * 2**20, dtype="bf16")
SM_90 = Room(registers=65536, shared=233472, threads=2048)


def timing(ms, noise=1.0):
    return Timing(ms, 0.9 * ms, 1.1 * ms, 50, noise)


@pytest.mark.parametrize("flops, moved, floor, bound", [
    (8e11, 4e9, 1.0, MEMORY), (1.6e12, 4e9, 2.0, COMPUTE), (1e6, 10**6, 0.003, LATENCY),
])  # fmt: skip
def test_the_floor_and_what_binds(flops, moved, floor, bound):
    found = limits(flops, int(moved), timing(4.0), RATES)
    assert (found.floor_ms, found.bound_by) == (pytest.approx(floor), bound)
    assert found.sol_pct == pytest.approx(25 * floor)
    assert (found.tflops, found.gbps) == pytest.approx((flops / 4e9, moved / 4e6))


def test_without_rates_there_is_no_floor():
    found = limits(8e11, 10**9, timing(4.0), None)
    assert (found.floor_ms, found.bound_by, found.sol_pct) == (None, None, None) and found.tflops == 200


@pytest.mark.parametrize("flops, moved, words", [
    (1e9, 10**6, None), (9e11, 10**6, None), (9.9e11, 10**6, r"9.9e\+11, 990 TFLOP/s, .* bf16 is 800"),
    (1e9, 49 * 10**8, "4.9e.09 bytes, 4.9e.03 GB/s, .* copies 4e.03"),
    (1e9, 10**8, None),  # it fits into the cache: 100 GB/s or 10,000, nothing says that memory was read
])  # fmt: skip
def test_more_than_the_device_can_do_is_a_wrong_formula(flops, moved, words):
    node = load("simple_gla").whole.nodes["out"]
    ms = 0.01 if moved == 10**8 else 1.0
    found = impossible(node, limits(flops, moved, timing(ms), RATES), RATES)
    assert (found is None) == (words is None)
    if found:
        assert found.code == "CW806" and found.mark.file.endswith("chunk_o.py")
        assert re.search(words, found.message)


@pytest.mark.parametrize("registers, shared, warps, share", [
    (255, 0, 4, 12.5), (32, 0, 4, 100.0), (128, 0, 4, 25.0), (32, 100 * 1024, 4, 12.5), (32, 232448, 8, 12.5),
    (32, 240000, 4, 0.0), (64, 1024, 1, 50.0), (0, 0, 2, 100.0),
])  # fmt: skip
def test_occupancy_on_hopper(registers, shared, warps, share):
    assert occupancy_pct(registers, shared, warps, SM_90) == pytest.approx(share)


def call_of(name, **sizes):
    op = load(name)
    return op.bind(make_inputs(op.whole, complete(op.whole, sizes), torch.bfloat16, torch.device("cpu")))


def test_the_bytes_of_the_op_and_of_its_edges():
    B, T, H, K, V, NT = 2, 128, 3, 32, 16, 2
    call = call_of("simple_gla", B=B, T=T, H=H, HV=H, K=K, V=V)
    tokens, states = B * T * H, B * H * K * V
    assert op_bytes([call.forward_plan()]) == tokens * (2 * 2 * K + 2 * 2 * V + 4) + 2 * 4 * states
    found = {(edge.value, edge.source, edge.target): edge.bytes for edge in edges(call.graph, call.sizes, call.io)}
    assert found["cumsum.y", "cumsum", "scan"] == found["cumsum.y", "cumsum", "out"] == 4 * tokens
    assert found["scan.h", "scan", "out"] == 2 * NT * states
    assert found["k", "", "scan"] == 2 * tokens * K and ("out.o", "out", "") in found


def test_with_gradients_they_come_in_and_go_out():
    call = call_of("simple_gla", B=1, T=64, H=1, HV=1, K=16, V=16)
    joint = call.joint(call.trainable(), call.wanted)
    plans = [call.forward_plan(joint), call.backward_plan(joint)]
    assert op_bytes(plans) == 2 * op_bytes([call.forward_plan()])


def test_sums_add_their_noise_as_squares():
    found = sum_of([timing(3.0, noise=2.0), timing(4.0, noise=2.0)])
    assert (found.median_ms, found.noise_pct) == (7.0, pytest.approx(100 * 0.1 / 7))


@pytest.mark.parametrize("whole, host_us, words", [
    (2.9, 50.0, ["-0.1 ms: -0.2 ms inside the stages, +0.1 ms outside", "finds in the caches"]),
    (3.9, 3500.0, ["+0.9 ms", "3500 us to enqueue a call, so the device waits for it"]),
    (3.9, 500.0, ["+0.9 ms", "500 us to enqueue a call$"]),
    (3.0, None, ["is no larger than the noise"]),
])  # fmt: skip
def test_the_gap_in_words(whole, host_us, words):
    lines = gap_notes(timing(3.0), timing(2.8), timing(whole, noise=0.5), host_us, None)
    for each in words:
        assert any(re.search(re.escape(each).replace(r"\$", "$"), line) for line in lines), lines


def test_rates_are_measured_once_and_kept_where_people_can_read_them(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = []
    monkeypatch.setattr(device_rates, "measure", lambda device, io, clock: measured.append(io) or RATES)
    cpu = torch.device("cpu")
    for io in (torch.bfloat16, torch.float32, torch.bfloat16):
        assert device_rates.device_rates(cpu, io) == RATES
    assert measured == [torch.bfloat16, torch.float32]
    kept = tmp_path / "chunkwise" / "device_rates.json"
    assert len(json.loads(kept.read_text())) == 2 and "copy_gbps" in kept.read_text()
    kept.write_text("something else")
    assert device_rates.device_rates(cpu, torch.bfloat16) == RATES and len(measured) == 3


def test_rates_that_were_measured_on_a_busy_machine_are_measured_again(tmp_path, monkeypatch):
    """Before anyone's formula is called wrong."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    busy, cpu = replace(RATES, matrix_tflops=80.0, launch_ms=0.001), torch.device("cpu")
    monkeypatch.setattr(device_rates, "measure", lambda device, io, clock: RATES)
    stages = SimpleNamespace(times=[SimpleNamespace(
        step=SimpleNamespace(node=load("simple_gla").whole.nodes["out"]), flops=7e11, bytes=1, alone=timing(1.0)
    )])  # fmt: skip
    machine = Machine(cpu, None, busy, {})
    assert len(impossible_at(stages, busy)) == 1 and faults(stages, machine, torch.bfloat16) == []
    assert device_rates.device_rates(cpu, torch.bfloat16) == replace(RATES, launch_ms=0.001)
    stages.times[0].flops = 9.9e11
    assert [each.code for each in faults(stages, machine, torch.bfloat16)] == ["CW806"]


def test_this_processor_copies_and_multiplies(monkeypatch):
    monkeypatch.setattr(device_rates, "COPIED_BYTES", {"cpu": 2**22})
    monkeypatch.setattr(device_rates, "MATRIX_SIDE", {"cpu": 128})
    cpu = torch.device("cpu")
    found = device_rates.measure(cpu, torch.float32, device_rates.clock_of(cpu))
    assert 0.1 < found.copy_gbps < 10_000 and 1e-4 < found.matrix_tflops < 100 and 0 < found.launch_ms < 10
    assert found.cache_bytes > 2**17 and replace(found, dtype="fp32") == found
