"""Bench on a GPU: its clocks against torch.profiler, what it says of kernels, replay, host time and memory."""

import pytest
import torch
from support.gpu_room import room, total

from chunkwise.runner import load
from chunkwise.runner.benching.case import Case, input_set
from chunkwise.runner.benching.machine import this_machine
from chunkwise.runner.benching.measure import measure
from chunkwise.runner.benching.record import EAGER, END_TO_END, FIRST_CALL, REPLAY, STAGE_ALONE, STAGE_INSIDE, SUM
from chunkwise.runner.benching.whole_op import ours, run_once
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.workloads import WORKLOADS

pytestmark = pytest.mark.gpu

RUNS = 10
WORKLOAD = "B1_T8192_H96_D128"


@pytest.fixture(autouse=True)
def alone():
    """No other test of this size beside it; timings want the whole GPU, one process for all the tests."""
    with room(total()):
        yield


def case_of(name, workload, backward=False):
    op = load(name)
    sizes = {axis: size for axis, size in WORKLOADS[workload].items() if axis in op.whole.axis_names}
    device = torch.device("cuda", 0)
    return Case(op, workload, complete(op.whole, sizes), frozenset(), None, torch.bfloat16, device, backward)


def measured(name, backward=False):
    """(case, machine, records by stage and scope)."""
    case = case_of(name, WORKLOAD, backward)
    machine = this_machine(case.device, case.io, print)
    found = measure(case, machine, (), False, print)
    assert not found.faults
    return case, machine, {(each.what.stage, each.clock.scope): each for each in found.records}


def profiled(case, machine, names):
    """(the sum of the kernels' times, the time from the first one's start to the last one's end) of a run in ms, by
    torch.profiler, with the L2 cache cold at the start as the clock has it."""
    from torch.profiler import ProfilerActivity, profile

    given, forward = input_set(case), ours(case)
    run_once(forward, given)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for _ in range(RUNS):
            machine.clock.start_cold()
            run_once(forward, given)
        torch.cuda.synchronize()
    ours_ = sorted((e.time_range for e in found.events() if e.name in names), key=lambda each: each.start)
    each_run = len(ours_) // RUNS
    sums, spans = [], []
    for at in range(0, len(ours_), each_run):
        run = ours_[at : at + each_run]
        sums.append(sum(each.elapsed_us() for each in run) / 1e3)
        spans.append((run[-1].end - run[0].start) / 1e3)
    return sorted(sums)[RUNS // 2], sorted(spans)[RUNS // 2]


@pytest.mark.parametrize("name", ["gated_delta", "simple_gla"])
def test_the_clocks_agree_with_the_profiler_within_5_percent(name):
    case, machine, records = measured(name)
    kernels = {kernel.name for each in records.values() for kernel in each.kernels}
    total, span = profiled(case, machine, kernels)
    inside, whole = records[SUM, STAGE_INSIDE].timing.median_ms, records[END_TO_END, EAGER].timing.median_ms
    assert inside == pytest.approx(total, rel=0.05)
    assert whole == pytest.approx(span, rel=0.05)
    assert whole - inside == pytest.approx(span - total, abs=0.05 * whole)


def test_what_is_said_of_a_run_with_its_gradients():
    _, machine, records = measured("gated_delta", backward=True)
    whole, replay = records[END_TO_END, EAGER], records[END_TO_END, REPLAY]
    assert whole.host_us > 0 and whole.peak_mem_mb > 0 and whole.clock.l2 == "cold"
    assert not replay.why and replay.timing.median_ms <= 1.05 * whole.timing.median_ms
    assert records[END_TO_END, FIRST_CALL].timing.median_ms >= whole.timing.median_ms
    kernels = [kernel for each in records.values() for kernel in each.kernels]
    assert all(kernel.registers > 0 and kernel.spills >= 0 and 0 < kernel.occupancy_pct <= 100 for kernel in kernels)
    matrix = {kernel.matrix for kernel in kernels}
    assert "none" in matrix and len(matrix) > 1
    assert "wgmma" in matrix or torch.cuda.get_device_capability()[0] != 9
    assert {each.limits.bound_by for each in records.values() if each.limits} <= {"memory", "compute", "latency"}
    assert machine.facts["driver"] and machine.facts["ptxas"] and machine.facts["sm_clock_max_mhz"]


def test_a_stage_alone_does_not_wait_for_the_host():
    """At sizes where a launch costs the host more than the device."""
    case = case_of("simple_gla", "tiny")
    found = measure(case, this_machine(case.device, case.io, print), (), False, print).records
    alone = {each.what.stage: each.timing.median_ms for each in found if each.clock.scope == STAGE_ALONE}
    whole = next(each for each in found if each.clock.scope == EAGER)
    assert alone["cumsum"] < 0.02 and alone[SUM] < whole.timing.median_ms
