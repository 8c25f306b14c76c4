"""C2: every configuration that ships, forward and gradient, is in budget on this very device."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from support.configurations import jobs, run
from support.one_stage import STAGES

from chunkwise.runner.planning.plan import device_class

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def running():
    """Stage -> its jobs, all under way at once: what they wait for is the compiler."""
    device = device_class(torch.device("cuda"))
    workers = max(1, min(14, (os.cpu_count() or 2) - 2))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield {name: [pool.submit(run, job) for job in jobs(name, device)] for name in STAGES}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", STAGES)
def test_c2_every_configuration(running, name):
    found = [job.result() for job in running[name]]
    wrong = [each for each in found if each]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(found)}", *wrong])
    assert found or not STAGES[name].launchers
