"""What cutting sequences over the GPUs of one host costs and saves: against one GPU, forward and with gradients.

First the report of ``chunkwise run --context-parallel --backward``: verified in bfloat16, every stage timed, those of
communication with their bytes. Then, for each size, the time of all ranks together, of rank 0 alone on all the rows
where it can hold them, and the ratio of the two; efficiency is that ratio over the number of ranks. Stages are fused
where that is faster, alone and cut; notes below the report say which.

    torchrun --nproc-per-node 2 examples/context_parallel/measure.py [--tiny]        # --tiny: on CPUs, to try it
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.main import main as chunkwise
from chunkwise.runner.parallel.cut import even_rows
from chunkwise.runner.parallel.rank_clock import RankClock
from chunkwise.runner.parallel.torchrun import require_ranks
from chunkwise.runner.planning.execute import run_step
from chunkwise.runner.reporting.clocks import clock_of
from chunkwise.runner.reporting.memory import out_of_memory
from chunkwise.runner.reporting.timing import passes
from chunkwise.runner.script import told
from chunkwise.runner.verification.generate import make_inputs

PIPELINES = ("gated_delta", "simple_gla")
LARGE = [(131072, 16, 128), (131072, 96, 128), (524288, 16, 128), (1572864, 16, 128)]
TINY = [(256, 1, 16)]
"""(T, H, K = V); B = 1."""


def inputs_of(op, T: int, H: int, K: int, io, device):
    """Without an initial state, as in training."""
    sizes = complete(op.whole, dict(B=1, T=T, H=H, HV=H, K=K, V=K))
    return {**make_inputs(op.whole, sizes, io, device), "initial_state": None}


def milliseconds(call, backward: bool, clock) -> float:
    _, run_all = passes(call, backward)
    (timing,) = clock.race([lambda _: run_all(run_step)])
    return timing.median_ms


def alone(op, size, io, device, backward: bool) -> float | None:
    """One GPU on all the rows; None where it has no memory for them."""
    try:
        call = op.bind(inputs_of(op, *size, io, device))
        return milliseconds(call, backward, clock_of(device))
    except Exception as error:
        if not out_of_memory(error):
            raise
        return None


def compare(name: str, size: tuple[int, int, int], io, device) -> list[str]:
    """A line for the forward pass and one with gradients. Every rank calls it."""
    op, (T, *rest), lines = load(name), size, []
    cut = op.context_parallel()
    rows = even_rows(T, cut.ranks.size)[cut.ranks.rank]
    for backward in (False, True):
        call, _ = cut.bind(inputs_of(op, rows, *rest, io, device))
        together = milliseconds(call, backward, RankClock(cut.ranks, device))
        del call
        single = alone(op, size, io, device, backward) if cut.ranks.rank == 0 else None
        dist.barrier()
        lines.append(line_of(name, size, backward, together, single, cut.ranks.size))
    return lines


HEAD = f"{'pipeline':12} {'T':>8} {'H':>4}  {'pass':14} {'ranks ms':>10} {'one ms':>10}  ratio  efficiency"


def line_of(name, size, backward: bool, together: float, single: float | None, ranks: int) -> str:
    what = "with gradients" if backward else "forward"
    line = f"{name:12} {size[0]:8} {size[1]:4}  {what:14} {together:10.3f}"
    if single is None:
        return f"{line} {'no memory':>10}"
    ratio = single / together
    return f"{line} {single:10.3f}  {ratio:5.2f}  {100 * ratio / ranks:8.0f} %"


@told
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    tiny = parser.parse_args(argv).tiny
    cuda = torch.cuda.is_available()
    if not cuda and not tiny:
        parser.error("there is no GPU for sequences of up to 1,572,864 tokens; --tiny shows it on a CPU")
    require_ranks("measure.py", "examples/context_parallel/measure.py")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    rank, io = dist.get_rank(), torch.bfloat16 if cuda else torch.float32
    sizes = TINY if tiny else LARGE
    T, H, K = sizes[0]
    for name in PIPELINES:
        axes = f"B=1,T={T},H={H},HV={H},K={K},V={K}"
        code = chunkwise(["run", name, "--context-parallel", "--backward", "--axes", axes])
        if code:
            return code
    if rank == 0:
        print(f"\n{dist.get_world_size()} ranks\n{HEAD}")
    for name in PIPELINES:
        for size in sizes:
            for line in compare(name, size, io, device):
                if rank == 0:
                    print(line, flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
