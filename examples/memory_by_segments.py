"""Memory against work: a forward and backward pass in one call, and in segments that keep every n-th chunk state.

    python examples/memory_by_segments.py [gated_delta simple_gla ...] [--workload B1_T8192_H96_D128]
                                          [--chunks 64,32,16] [--device cuda]

One Markdown table an op on stdout: milliseconds of both passes (medians), and the peak of memory above the inputs, in
MB. bf16 on a GPU; on a CPU float32, the workload tiny and only the times (PyTorch counts no memory there).
"""

import argparse
import statistics
import sys
import time

import torch

from chunkwise.runner import Op, load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.script import device_option, told, wholes
from chunkwise.runner.verification.generate import make_inputs
from chunkwise.runner.workloads import WORKLOADS

REPEATS = 10


@told
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", default=["gated_delta", "simple_gla"])
    parser.add_argument("--workload", choices=list(WORKLOADS))
    parser.add_argument("--chunks", type=wholes, metavar="64,32,16")
    device_option(parser)
    given = parser.parse_args(argv)
    given.workload = given.workload or ("tiny" if given.device.type == "cpu" else "B1_T8192_H96_D128")
    given.chunks = given.chunks or ([2, 1] if given.workload == "tiny" else [64, 32, 16])
    ops = [load(name) for name in given.ops]
    for op in ops:
        op.in_segments(chunks=1)  # is refused now if it has no segments
    for op in ops:
        table(op, given.workload, given.chunks, given.device)


def table(op: Op, workload: str, chunks: list[int], device: torch.device) -> None:
    name = op.spec.name
    sizes = {axis: n for axis, n in WORKLOADS[workload].items() if axis in op.whole.axis_names}
    io = torch.bfloat16 if device.type == "cuda" else torch.float32
    tensors = make_inputs(op.whole, complete(op.whole, sizes), io, device)
    trainable = [each for each, x in tensors.items() if x.is_floating_point() and op.has_gradient(each)]
    print(f"\n{name}, {workload}, {str(io).removeprefix('torch.')}\n\n| keeps | ms | peak MB |\n|---|---|---|")
    for n in (None, *chunks):
        print(f"{name}: {'one call' if n is None else f'segments of {n} chunks'}", file=sys.stderr)
        ms, peak = measured(op if n is None else op.in_segments(chunks=n), tensors, trainable, device)
        kept = "no state" if n is None else f"a state every {n} chunks" if n > 1 else "a state every chunk"
        print(f"| {kept} | {ms:.3f} | {peak} |", flush=True)


def measured(op, tensors, trainable, device) -> tuple[float, str]:
    """(median ms, peak in MB) of both passes."""
    leaves = {name: x.detach().requires_grad_(name in trainable) for name, x in tensors.items()}
    wanted = [leaves[name] for name in trainable]
    cotangent = torch.ones_like(op(**leaves, outputs=["o"]).o)

    def passes():
        torch.autograd.grad(op(**leaves, outputs=["o"]).o, wanted, cotangent, allow_unused=True)

    passes()
    if device.type == "cpu":
        return statistics.median(host_ms(passes) for _ in range(3)), "-"
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    passes()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return statistics.median(device_ms(passes) for _ in range(REPEATS)), f"{peak / 1e6:.0f}"


def host_ms(passes) -> float:
    start = time.perf_counter()
    passes()
    return (time.perf_counter() - start) * 1e3


def device_ms(passes) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    passes()
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


if __name__ == "__main__":
    sys.exit(main())
