"""What the first calls of a process cost, with nothing compiled before: seconds, and kernels that were compiled.

    python examples/first_call.py [PIPE ...] [--workload B1_T8192_H96_D128] [--vs fla] [--device cuda]

Each line is of a process of its own with an empty TRITON_CACHE_DIR. Before anything is timed PyTorch and the op's files
are read, the device's context is up, the inputs are on it, and PyTorch has run a backward pass (its first one imports
half a second of its own); Triton itself is imported by the first call. Columns:
the first call without gradients; the first one with gradients and its backward pass, which compile what is left; both
again with twice the batch and other lengths, which ours compiles nothing for; both again with half the heads, for which
a kernel may be another. Kernels are Triton's, by what came into its cache; what a peer compiles by other means is in
its seconds alone.

On a CPU the references run: that shows what is measured, and nothing is compiled.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from chunkwise.runner import ChunkwiseError, Diagnostic, load
from chunkwise.runner.benching.case import Case, InputSet, tensors
from chunkwise.runner.benching.peers import FAILURES, find_peer, first_line
from chunkwise.runner.benching.whole_op import backward_of_pytorch
from chunkwise.runner.diagnostics import codes
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.script import device_option, peer_names, told
from chunkwise.runner.workloads import WORKLOADS, other_axes

PIPELINES = ("gated_delta", "simple_gla", "gla", "kda")
CACHE = "TRITON_CACHE_DIR"
LAPS = ("forward", "with gradients", "other B and T", "half the heads")


class Lap(NamedTuple):
    seconds: float
    kernels: int


def in_own_process(name: str, peer: str, workload: str, device: str) -> list[Lap]:
    """One for each of LAPS. peer: its name, or "" for ours."""
    with TemporaryDirectory() as folder:
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=begin, initargs=(folder,)) as pool:
            return pool.submit(laps, name, peer, workload, device).result()


def begin(folder: str) -> None:
    """With this folder for Triton's cache."""
    os.environ[CACHE] = folder


def laps(name: str, peer: str, workload: str, device: str) -> list[Lap]:
    """In a process where nothing was called yet."""
    case = case_of(name, workload, torch.device(device))
    forward = find_peer(peer, case).forward if peer else lambda given: case.op(**given.inputs)._asdict()
    plain, leaves = inputs_of(case, case.sizes, bound=bool(peer))
    backward_of_pytorch(case.device)
    found = [lap(lambda: forward(plain), case.device), lap(lambda: both_passes(forward, leaves), case.device)]
    for sizes in (other_lengths(case.sizes), half_the_heads(case.sizes)):
        plain, leaves = inputs_of(case, complete(case.op.whole, sizes), bound=bool(peer))
        found.append(lap(lambda: (forward(plain), both_passes(forward, leaves)), case.device))  # noqa: B023
    return found


def both_passes(forward: Callable, leaves: InputSet) -> None:
    out = [x for x in forward(leaves).values() if x is not None and x.requires_grad]
    wanted = [x for x in leaves.inputs.values() if x is not None and x.requires_grad]
    torch.autograd.grad(out, wanted, [torch.ones_like(x) for x in out], allow_unused=True)


def case_of(name: str, workload: str, device: torch.device) -> Case:
    """Raises ChunkwiseError for an op that has no gradients, or no B and T to be others."""
    op, named = load(name), WORKLOADS[workload]
    if op.whole.mutated or not {"B", "T"} <= set(op.whole.axis_names):
        message = f"first_call.py times ops of B sequences of T tokens with their gradients, and {name} is none"
        raise ChunkwiseError(Diagnostic(codes.USAGE, message, help=f"such as {', '.join(PIPELINES)}"))
    sizes = {axis: n for axis, n in {**named, **other_axes(named)}.items() if axis in op.whole.axis_names}
    io = torch.bfloat16 if device.type == "cuda" else torch.float32
    return Case(op, workload, complete(op.whole, sizes), frozenset(), None, io, device, backward=True)


def other_lengths(sizes: Mapping[str, int]) -> dict[str, int]:
    return sizes_of_inputs(sizes) | {"B": 2 * sizes["B"], "T": sizes["T"] // 2 + 7}


def half_the_heads(sizes: Mapping[str, int]) -> dict[str, int]:
    return sizes_of_inputs(sizes) | {axis: sizes[axis] // 2 for axis in ("H", "HV") if axis in sizes}


def sizes_of_inputs(sizes: Mapping[str, int]) -> dict[str, int]:
    """Without what follows from them."""
    return {axis: n for axis, n in sizes.items() if axis not in ("N", "NT")}


def inputs_of(case: Case, sizes: Mapping[str, int], bound: bool) -> tuple[InputSet, InputSet]:
    """(without gradients, with them). bound: to a call, which peers read. Asks an op that is not the one timed."""
    given = tensors(case, sizes)
    other = load(case.op.spec.name)
    call = other.bind(given) if bound else None
    able = [name for name, x in given.items() if x.is_floating_point() and other.has_gradient(name)]
    leaves = {name: x.detach().requires_grad_(name in able) for name, x in given.items()}
    return InputSet(call, given), InputSet(call, leaves)


def lap(run: Callable[[], object], device: torch.device) -> Lap:
    before = compiled()
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return Lap(time.perf_counter() - start, compiled() - before)


def compiled() -> int:
    """Kernels in Triton's cache."""
    return len(list(Path(os.environ[CACHE]).rglob("*.cubin")))


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def row(name: str, cells: list[str]) -> str:
    return f"{name:<20}" + "".join(f"{cell:>22}" for cell in cells)


@told
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="*", metavar="PIPE", help=f"{', '.join(PIPELINES)} by default")
    parser.add_argument("--workload", choices=list(WORKLOADS), help="B1_T8192_H96_D128 on a GPU, else tiny, by default")
    parser.add_argument("--vs", type=peer_names, default=[], metavar="fla", help="whose first calls may take a minute")
    device_option(parser)
    args = parser.parse_args(argv)
    args.workload = args.workload or ("tiny" if args.device.type == "cpu" else "B1_T8192_H96_D128")
    names = args.pipelines or PIPELINES
    for name in names:
        case_of(name, args.workload, args.device)
    print(f"seconds of the first calls of a process, and kernels compiled; {args.workload}, {args.device.type}")
    if args.device.type == "cpu":
        print("On the CPU the references run: nothing is compiled.")
    print(row("", list(LAPS)), flush=True)
    for name in names:
        for peer in ("", *args.vs):
            print(f"{name}{peer and ', ' + peer}: a process of its own ...", file=sys.stderr)
            try:
                cells = [f"{each.seconds:.2f} s, {each.kernels:>2}" for each in
                         in_own_process(name, peer, args.workload, str(args.device))]  # fmt: skip
            except FAILURES as error:
                cells = [first_line(error)]
            print(row(f"  {peer}" if peer else name, cells), flush=True)


if __name__ == "__main__":
    sys.exit(main())
