"""Several processes with a group, to run a function in each: one spawn serves many checks.

The processes are forked off a server that has imported everything once, and has never run anything.
"""

import multiprocessing
import os
import socket
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

SPAWN = multiprocessing.get_context("forkserver")
MODULES = ["support.ranks", "chunkwise.runner.public", "chunkwise.runner.commands._context_parallel"]
COMPILER = ["torch._dynamo.backends.debugging", "torch._functorch.aot_autograd", "torch._inductor.select_algorithm"]
"""For tests that compile: half of what a rank's first compilation takes."""
SPAWN.set_forkserver_preload(MODULES)


def on_ranks(size, function, *given, timeout=60, lost=(), transport="gloo"):
    """function(rank, size, *given) on every rank; what each returns, or raises, as text. lost: the ranks
    that are meant to die."""
    results, port = SPAWN.Queue(), free_port()
    processes = [
        SPAWN.Process(target=enter, args=(rank, size, port, timeout, transport, function, given, results))
        for rank in range(size)
    ]
    for each in processes:
        each.start()
    found = {}
    try:
        while len(found) < size - len(lost):
            rank, value = results.get(timeout=timeout + 60)
            found[rank] = value
    finally:
        for each in processes:
            each.join(10)
            each.kill()
    return [found.get(rank) for rank in range(size)]


def enter(rank, size, port, timeout, transport, function, given, results):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    os.environ.update(LOCAL_RANK=str(rank))
    try:
        device = torch.device("cuda", rank) if transport == "nccl" else None
        if device:
            torch.cuda.set_device(device)
        dist.init_process_group(transport, timeout=timedelta(seconds=timeout), device_id=device)
        value = function(rank, size, *given)
    except BaseException:
        value = traceback.format_exc()
    results.put((rank, value))
    results.close()
    results.join_thread()
    os._exit(0)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
