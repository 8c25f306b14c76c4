"""What a call costs the host: microseconds until it returns, on tensors so small that the device does not matter.

    python examples/host_cost.py [PIPE ...] [--vs fla] [--device cuda]

Columns: seconds of the very first call, which compiles what Triton's cache does not have (an empty TRITON_CACHE_DIR
makes it cold); then microseconds of an eager call without gradients, of one that may be differentiated, of the backward
pass and of that for each of its launches, and of a replay from a CUDA graph (op.graphed); and of 1,000 additions in
Python right after, by which lines of other minutes and machines compare. With --vs, a line of each peer follows.
First calls at real sizes, each in a process of its own: examples/first_call.py.

Each figure is the median over bursts of ten calls, which wait for the device between them: within one the host runs
ahead, so that what is timed is Python, PyTorch's autograd, the allocator and the driver's queueing. Python's garbage
collector is off meanwhile.

On a CPU the references run inside of the call: that shows what is measured, and no cost of launching kernels.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from chunkwise.runner import load
from chunkwise.runner.benching.case import Case, InputSet, input_set
from chunkwise.runner.benching.peers import Inapplicable, find_peer
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.reporting.clocks import clock_of
from chunkwise.runner.script import device_option, peer_names, told

PIPELINES = ("gated_delta", "delta_rule", "simple_gla", "gla", "kda", "gated_delta_decode", "kda_decode")
SIZES = dict(B=1, T=128, H=2, HV=2, HQ=2, K=64, V=64, D=64)
OTHER = 16
BURSTS, CALLS = 40, 10
COLUMNS = ("first s", "eager", "with gradients", "backward", "a launch", "replay", "additions")


@dataclass(frozen=True)
class Cost:
    """first: seconds. The others: microseconds, None where there is no such thing. launches: of the backward pass."""

    name: str
    first: float
    additions: float
    eager: float
    trained: float | None = None
    backward: float | None = None
    launches: int = 0
    replay: float | None = None

    @property
    def cells(self) -> list[str]:
        each = self.backward / self.launches if self.launches else None
        figures = (self.eager, self.trained, self.backward, each, self.replay, self.additions)
        return [f"{self.first:.2f}", *("-" if x is None else f"{x:.1f}" for x in figures)]


def host_us(run: Callable[[], object], device: torch.device) -> float:
    """Microseconds of one call."""
    found = []
    gc.disable()
    try:
        for _ in range(BURSTS):
            wait(device)
            start = time.perf_counter()
            for _ in range(CALLS):
                run()
            found.append((time.perf_counter() - start) / CALLS * 1e6)
    finally:
        gc.enable()
    return median(found)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def case_of(name: str, device: torch.device) -> Case:
    op = load(name, mode="chunk")
    sizes = {axis: SIZES.get(axis, OTHER) for axis in op.whole.axis_names if axis not in ("N", "NT", *op.spec.axes)}
    if op.whole.mutated:
        sizes["T"] = 1
    io = torch.bfloat16 if device.type == "cuda" else torch.float32
    return Case(op, None, complete(op.whole, sizes), frozenset(), None, io, device, backward=not op.whole.mutated)


def cost(name: str, case: Case, forward: Callable[[InputSet], object], launches: int = 0, graphed=None) -> Cost:
    """forward: outputs by name. graphed: makes a replay of the inputs without gradients."""
    given, device = input_set(case), case.device
    leaves = InputSet(given.call, given.inputs)
    plain = InputSet(given.call, {key: None if x is None else x.detach() for key, x in given.inputs.items()})
    wait(device)
    start = time.perf_counter()
    forward(plain)
    wait(device)
    first = time.perf_counter() - start
    eager = host_us(lambda: forward(plain), device)
    replay = host_us(graphed(plain.inputs), device) if graphed and device.type == "cuda" else None
    if not given.trainable:
        return Cost(name, first, host_us(additions, device), eager, replay=replay)
    found = forward(leaves)
    outputs = [found[output] for output in given.cotangents]
    inputs, cotangents = [given.inputs[key] for key in given.trainable], list(given.cotangents.values())

    def backward():
        torch.autograd.grad(outputs, inputs, cotangents, retain_graph=True, allow_unused=True)

    backward()
    trained = host_us(lambda: forward(leaves), device)
    back = host_us(backward, device)
    return Cost(name, first, host_us(additions, device), eager, trained, back, launches, replay)


def additions() -> None:
    total = 0
    for each in range(1000):
        total += each


def ours(case: Case) -> Cost:
    """Launches are what the plan of the backward pass launches, once it was run."""
    op = case.op
    found = cost(op.spec.name, case, lambda given: op(**given.inputs)._asdict(), graphed=lambda x: op.graphed(**x))
    if found.backward is None:
        return found
    (launches,) = {backward_launches(plan) for plan in op.plans.items.values() if plan.results == plan.graph.gradients}
    return Cost(**vars(found) | {"launches": launches})


def backward_launches(plan) -> int:
    """0 where references ran."""
    programs = [run.program for run in plan.prepared.items.values() if run.program]
    return sum(len(stretch.launches) for program in programs for stretch in program.stretches)


def peers(names: list[str], case: Case) -> list[Cost | str]:
    """A peer's line, or why there is none."""
    found: list[Cost | str] = []
    for name in names:
        try:
            peer = find_peer(name, case)
        except Inapplicable as error:
            found.append(f"  {name}: {error}")
            continue
        found.append(cost(f"  {peer.implementation}", case, peer.forward))
    return found


def line(name: str, cells: list[str] | tuple[str, ...]) -> str:
    return f"{name:<24}" + "".join(f"{cell:>16}" for cell in cells)


@told
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="*", metavar="PIPE", help=f"{', '.join(PIPELINES)} by default")
    parser.add_argument("--vs", type=peer_names, default=[], metavar="fla", help="whose first calls may take a minute")
    device_option(parser)
    args = parser.parse_args(argv)
    device = args.device
    cases = [case_of(name, device) for name in args.pipelines or PIPELINES]
    clock_of(device)  # the context is up before the first call is timed
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    sizes = " ".join(f"{axis}{size}" for axis, size in SIZES.items())
    print(f"microseconds of host time a call; {where}, {sizes}, T1 for decoding")
    if device.type != "cuda":
        print("The references ran, on the CPU: no measure of launching kernels.")
    print(line("", COLUMNS), flush=True)
    for case in cases:
        for each in (ours(case), *peers(args.vs, case)):
            print(each if isinstance(each, str) else line(each.name, each.cells), flush=True)


if __name__ == "__main__":
    sys.exit(main())
