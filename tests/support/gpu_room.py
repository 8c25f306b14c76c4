"""Memory of one GPU among the processes of a test run: each test takes what it needs, and waits until it is there."""

import json
import math
import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock

from chunkwise.runner.graphs.graph import Graph
from chunkwise.runner.graphs.sizes import shape
from chunkwise.runner.planning.dtypes import port_dtype

SMALL = 3 * 2**30
"""What every process may use without asking; a context takes a part of it."""
TRUTH = 12 * 2**30
"""For float64 values, of as many heads as that holds."""


def workers() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))


def total() -> int:
    return int(0.95 * torch.cuda.get_device_properties(0).total_memory)


def op_bytes(graph: Graph, sizes, io: torch.dtype) -> int:
    """Every value of a graph at once, a quarter of that again for scratch, and the least that verification takes."""
    values = sum(math.prod(shape(x.axes, sizes)) * port_dtype(x.dtype, io).itemsize for x in graph.values.values())
    return max(TRUTH, int(1.25 * values) + SMALL)


@contextmanager
def room(bytes: int):
    """That much memory for this process alone; with one process, all of it."""
    if workers() == 1:
        yield
        return
    place = Path(tempfile.gettempdir()) / f"gpu_room_{os.environ['PYTEST_XDIST_TESTRUNUID']}"
    lock, shared = FileLock(f"{place}.lock"), total() - workers() * SMALL
    mine = min(bytes, shared)
    while not taken(place, lock, mine, shared):
        time.sleep(0.2)
    limit(SMALL + mine)
    try:
        yield
    finally:
        torch.cuda.empty_cache()
        limit(SMALL)
        taken(place, lock, -mine, shared)


def taken(place: Path, lock: FileLock, bytes: int, shared: int) -> bool:
    with lock:
        used = json.loads(place.read_text()) if place.exists() else 0
        if used + bytes > shared:
            return False
        place.write_text(json.dumps(used + bytes))
        return True


def limit(bytes: int) -> None:
    torch.cuda.set_per_process_memory_fraction(bytes / torch.cuda.get_device_properties(0).total_memory)
