"""A pipeline of one small stage, and clocks that do not look long: for tests of bench and compare."""

import pytest
from support import twice
from support.twice import PIPELINE  # noqa: F401

from chunkwise.runner.benching import bench
from chunkwise.runner.benching.device_rates import DeviceRates
from chunkwise.runner.benching.machine import Machine
from chunkwise.runner.reporting import clocks
from chunkwise.runner.reporting.environment import environment

STAGE = twice.STAGE.replace("from chunkwise", "import time\nfrom chunkwise", 1)
"""Some tests make it slow."""
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
