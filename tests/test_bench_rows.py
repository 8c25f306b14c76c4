"""The rows of a case by a clock that has a device: replay, host time, memory, the gap, and what binds."""

from types import SimpleNamespace

import pytest
import torch
from support.bench_files import RATES
from support.ops import op

from chunkwise.runner import ChunkwiseError, load
from chunkwise.runner.benching import stage_clock
from chunkwise.runner.benching.case import Case, input_sets
from chunkwise.runner.benching.gate import require_written
from chunkwise.runner.benching.machine import Machine
from chunkwise.runner.benching.measure import measure
from chunkwise.runner.benching.record import EAGER, END_TO_END, FIRST_CALL, REPLAY, STAGE_ALONE, STAGE_INSIDE, SUM
from chunkwise.runner.benching.tables import OP_COLUMNS, STAGE_COLUMNS
from chunkwise.runner.commands import _bench_page
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.reporting.clocks import Timing

SIZES = dict(B=1, T=20, H=1, HV=1, K=16, V=16)


def steady(ms):
    return Timing(ms, ms, ms, 50, 0.1)


class Device:
    """A stage takes 1 ms alone and 0.9 ms inside, the whole op 4 ms, 3 ms of them as a graph."""

    timer, l2 = "CUDA events", "cold"

    def __init__(self, capture=None):
        self.capture, self.ahead, self.seen = capture, [], []

    def race(self, runs, ahead=False):
        for run in runs:
            for number in range(3):
                run(number)
        self.ahead.append(ahead)
        return [steady(1.0 if ahead else 3.0 if run is self.capture else 4.0) for run in runs]

    def laps(self, run_all):
        found = {}
        for number in range(2):
            run_all(number, lambda name, run: (run(), found.__setitem__(name, steady(0.9))))
        return found, steady(0.9 * len(found))

    def host_us(self, run):
        return 3900.0

    def peak_mb(self, run):
        return 12.5

    def captured(self, run):
        if self.capture is RuntimeError:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        self.capture = lambda number: None
        return self.capture


def case_of(name="simple_gla", backward=False):
    found = op(name)
    sizes, cpu = complete(found.whole, SIZES), torch.device("cpu")
    return Case(found, None, sizes, frozenset(), None, torch.float32, cpu, backward)


def rows(clock, backward=False):
    machine = Machine(torch.device("cpu"), clock, RATES, {"gpu": "H200"})
    found = measure(case_of(backward=backward), machine, (), False, str)
    return {(each.what.stage, each.clock.scope): each for each in found.records}


@pytest.mark.parametrize("backward, stages", [(False, 3), (True, 10)])
def test_the_rows_of_a_device(backward, stages):
    clock = Device()
    found = rows(clock, backward)
    whole, replay = found[END_TO_END, EAGER], found[END_TO_END, REPLAY]
    assert (found[SUM, STAGE_ALONE].timing.median_ms, found[SUM, STAGE_INSIDE].timing.median_ms) == (
        pytest.approx(stages), pytest.approx(0.9 * stages),
    )  # fmt: skip
    assert (whole.timing.median_ms, whole.host_us, whole.peak_mem_mb) == (4.0, 3900.0, 12.5)
    assert replay.timing.median_ms == 3.0 and "replayed from a CUDA graph, without the host: 3 ms" in whole.notes
    assert found[END_TO_END, FIRST_CALL].timing.runs == 1
    assert (whole.clock.timer, whole.clock.l2) == ("CUDA events", "cold")
    assert found["out", STAGE_INSIDE].clock.l2 == "as the step before left it"
    assert clock.ahead == [True] * stages + [False, False]


def test_the_gap_of_a_device_is_the_caches_and_the_host():
    notes = rows(Device())[END_TO_END, EAGER].notes
    assert notes[:3] == (
        "end to end - sum of stages = +1 ms: -0.3 ms inside the stages, +1.3 ms outside them",
        "inside the op a stage finds in the caches what the one before it wrote; alone it starts without",
        "outside the stages: checking the call, allocating buffers, launching; the host needs 3900 us to enqueue a "
        "call, so the device waits for it",
    )


def test_a_capture_that_fails_is_a_row():
    found = rows(Device(RuntimeError))
    assert found[END_TO_END, REPLAY].why == (
        "no CUDA graph: RuntimeError: operation not permitted when stream is capturing"
    )
    assert found[END_TO_END, EAGER].timing


def test_every_set_has_tensors_of_its_own_and_the_values_differ(monkeypatch):
    first, *others = input_sets(case_of())
    for other in others:
        for name, x in first.inputs.items():
            assert x.data_ptr() != other.inputs[name].data_ptr() and not torch.equal(x, other.inputs[name])
    assert len(others) == 2
    monkeypatch.setattr("chunkwise.runner.benching.case.free_bytes", lambda device: 1)
    assert len(input_sets(case_of())) == 1


def test_a_stage_alone_takes_the_sets_in_turn(monkeypatch):
    seen = []

    def observed(steps, runs):
        keep = real(steps, runs)

        def observe(step, run, outputs):
            keep(step, lambda: (seen.append((step.node.id, id(outputs))), run()), outputs)

        return observe

    real = stage_clock.keeping
    monkeypatch.setattr(stage_clock, "keeping", observed)
    machine = SimpleNamespace(clock=Device(), rates=RATES)
    case = case_of()
    stage_clock.time_stages(case, input_sets(case), machine.clock, str)
    alone = [each for each in seen if each[0] == "scan"][-3:]
    assert len(set(alone)) == 3


def test_what_a_kernel_leaves_unwritten_is_an_error():
    case = case_of(backward=True)
    given = input_sets(case)[0]
    x = torch.zeros(3)
    require_written(case, given, {"o": x, "d_q": x, "scan.h": torch.full((3,), float("nan"))})
    for name in ("o", "d_q"):
        with pytest.raises(ChunkwiseError, match=f"CW803(.|\n)*{name} of simple_gla is not written whole"):
            require_written(case, given, {name: torch.tensor([0.0, float("nan")])})


def test_a_sum_over_no_key_is_written():
    """Its logarithm is -inf; no other output is."""
    case = SimpleNamespace(op=load("mla_naive"), title="some sizes")
    given, x = SimpleNamespace(call=SimpleNamespace(wanted=("o", "lse")), trainable=()), torch.tensor([0.0, -torch.inf])
    require_written(case, given, {"o": x.isfinite().float(), "lse": x})
    for wrong in ({"o": x}, {"lse": -x}, {"lse": x - x}):
        with pytest.raises(ChunkwiseError, match="CW803"):
            require_written(case, given, wrong)


def test_every_column_is_explained():
    told = {name for words in _bench_page.COLUMNS for name in (words, *words.split(", "))}
    assert set(STAGE_COLUMNS) | set(OP_COLUMNS) <= told
