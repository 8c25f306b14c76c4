"""Threads, the GPU marker, and what stands at the head of a test run."""

import gc
import os
import sys
from importlib.metadata import PackageNotFoundError, version

if "PYTEST_XDIST_WORKER" in os.environ:
    # one thread for each worker, and for the processes that its tests start
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from support.gpu_room import SMALL, limit, workers


def pytest_addoption(parser):
    parser.addoption("--require-gpu", action="store_true", help="fail at once without a GPU, in place of skipping")
    parser.addoption("--log", metavar="FILE", help="every test's outcome as it comes, for a run that may be cut off")


def pytest_configure(config):
    if config.getoption("--require-gpu") and not torch.cuda.is_available():
        raise pytest.UsageError("no GPU that PyTorch can use; `chunkwise doctor` says what there is")
    if workers() > 1 and torch.cuda.is_available():
        limit(SMALL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Appended by the process that ran the test: lines of several do not mix."""
    report = yield
    log = item.config.getoption("log")
    if log and (report.when == "call" or not report.passed):
        why = [line for line in report.longreprtext.splitlines() if line.startswith("E ")] if report.failed else []
        with open(log, "a") as file:
            file.write("\n".join([f"{report.outcome} {report.duration:.1f} s {report.nodeid}", *why, ""]))
    return report


def pytest_report_header():
    packages = ", ".join(f"{name} {installed(name)}" for name in ("chunkwise", "torch", "triton", "numpy"))
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"{packages}; {', '.join(names) or 'no GPU'}"


def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def pytest_runtest_teardown(item):
    """What a failure's traceback holds is not the next test's to miss. A kernel that reads outside memory costs its
    process the GPU: xdist starts another one for the tests to come."""
    if not torch.cuda.is_available() or not item.get_closest_marker("gpu"):
        return
    for name in ("last_exc", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    gc.collect()
    if workers() == 1:
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"{item.nodeid}: {error}", file=sys.stderr)
        os._exit(1)
