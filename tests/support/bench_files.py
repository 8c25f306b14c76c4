"""A pipeline of one small stage, and clocks that do not look long: for tests of bench and compare."""

import pytest

from chunkwise.runner.benching import bench
from chunkwise.runner.benching.device_rates import DeviceRates
from chunkwise.runner.benching.machine import Machine
from chunkwise.runner.reporting import clocks
from chunkwise.runner.reporting.environment import environment

STAGE = '''\
"""Its input, twice."""

import time
from chunkwise.stages._contract import Contract, Port

CONTRACT = Contract(inputs={"x": Port("B T HV")}, outputs={"y": Port("B T HV")}, flops="B * T * HV")


def reference(x):
    return {"y": 2 * x}


def vjp(d_y, *, needs):
    return {"x": 2 * d_y}
'''
PIPELINE = """\
schema: pipeline/v1
name: op
inputs: {x: B T HV}
definition: {step: [y = 2 * x]}
stages: {one: {use: twice, in: {x: x}}}
outputs: {y: one.y}
"""
SIZES = "B=1,T=24,HV=2"
RATES = DeviceRates(10.0, 0.1, 0.004, 2**25, "fp32")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Few rounds, and a device whose rates are known."""
    monkeypatch.setattr(clocks, "SECONDS", 0.01)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def this_machine(device, io, progress):
        return Machine(device, clocks.clock_of(device), RATES, environment(device))

    monkeypatch.setattr(bench, "this_machine", this_machine)
