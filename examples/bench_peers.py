"""The whole comparison with fla-core and FlashQLA in one command, on a GPU.

gated_delta forward and with gradients, long sequences of few heads and the other ops forward, at the shapes that people
ask for, every figure in one race on the same tensors.

    make bench-peers            # or: python examples/bench_peers.py [--out DIR] [what bench takes, --no-gate say]

It is `chunkwise bench --vs fla,flashqla`, once for each line of RUNS: each first verifies, each writes into the same
folder and goes on where it stopped. With gradients this op in three segments is in the race too, for its memory. Peers
that are missing, or of another version than was measured, are said first, with the command that installs them; without
them there are still our own figures. The table at the end has all. First calls take time: fla compiles and tunes for 30
to 90 s a shape, FlashQLA for 100 s.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from chunkwise.runner import ChunkwiseError, Diagnostic
from chunkwise.runner.benching.record import EAGER, END_TO_END, FILE, Record, Workload, read_records
from chunkwise.runner.comparing.compare_records import sizes
from chunkwise.runner.diagnostics import codes
from chunkwise.runner.script import told

A, B, D = "B1_T8192_H96_D128", "B2_T16384_H16_D128", "T32768_H16_HV32_D128"
LONG = ["--axes", "B=1,T=32768,H=4,HV=4,K=128,V=128"]
LONGER = ["--axes", "B=1,T=65536,H=2,HV=2,K=128,V=128"]
FORWARD, TRAINED = (), ("--backward",)
RUNS = (
    (["gated_delta"], ["--workload", f"{A},{B},{D}"], FORWARD),
    (["gated_delta"], ["--workload", f"{A},{B},{D}"], TRAINED),
    (["gated_delta"], LONG, FORWARD),
    (["gated_delta"], LONGER, FORWARD),
    (["simple_gla", "gla", "kda"], ["--workload", A], FORWARD),
)
"""(pipelines, sizes, pass)."""
SEGMENTS = "segments"
PEERS = {
    "fla": ("fla-core", "0.6.0", "fla-core==0.6.0 einops"),
    "flashqla": ("flash-qla", "0.1.3", "flash-qla==0.1.3 tilelang==0.1.12 apache-tvm-ffi==0.1.11 torch-c-dlpack-ext "
                 "z3-solver==4.15.4.0"),
}  # fmt: skip
"""Of --vs -> (distribution, the version that was measured, what pip installs)."""
OUT = "out/bench_peers"


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def peer_lines() -> Iterator[str]:
    """What is said of the peers before anything runs."""
    for name, (package, wanted, pip) in PEERS.items():
        found = installed(package)
        if found != wanted:
            what = f"{package} {found} is here, and {wanted} was measured" if found else f"{package} is not installed"
            yield f"{name}: {what}; pip install {pip}"
        else:
            yield f"{name}: {package} {found}"


def commands(out: str, more: list[str]) -> Iterator[list[str]]:
    for pipelines, at, way in RUNS:
        vs = ",".join([*PEERS, SEGMENTS] if way == TRAINED else PEERS)
        yield ["bench", *pipelines, *at, "--dtype", "bf16", "--vs", vs, "--out", out, *way, *more]


def run(command: list[str]) -> int:
    """In a process of its own: what one peer leaves behind is not in the next one's way."""
    print(f"\nchunkwise {' '.join(command)}", flush=True)
    return subprocess.run([sys.executable, "-m", "chunkwise.runner", *command]).returncode


def summary(records: Iterable[Record]) -> list[str]:
    """A line for each pipeline, workload and pass: ms of ours and of each peer, in brackets MB above the inputs, and
    how many times as fast ours is. Of several records of one thing the last counts."""
    rows: dict[tuple, dict[str, Record]] = {}
    for each in records:
        if each.what.stage == END_TO_END and each.clock.scope == EAGER:
            way = "with gradients" if each.workload.backward else "forward"
            row = rows.setdefault((each.what.pipeline, sizes(each.workload), label(each.workload), way), {})
            row[each.what.implementation.split()[0]] = each
    names = ("chunkwise", SEGMENTS, *PEERS)
    head = f"{'':<12}{'':<22}{'':<15}" + "".join(f"{name + ' ms (MB)':>19}" for name in names)
    head += "".join(f"{'x of ' + name:>15}" for name in PEERS)
    lines = []
    for (pipeline, _, workload, way), row in rows.items():
        figures = "".join(f"{cell(row.get(name)):>19}" for name in names)
        ratios = "".join(f"{ratio(row.get('chunkwise'), row.get(name)):>15}" for name in PEERS)
        lines.append(f"{pipeline:<11} {workload:<21} {way:<15}{figures}{ratios}")
    return [head, *lines]


def label(workload: Workload) -> str:
    """``B1_T32768_H4``, and what is not as RUNS asks for it: ``, fp16, packed 5,0,7``."""
    axes = "_".join(f"{axis}{size}" for axis, size in workload.axes.items() if axis in ("B", "T", "H"))
    other = [each for each in (workload.dtype, workload.mode) if each not in ("bf16", "chunk")]
    return ", ".join([workload.name or axes, *other]) + workload.form


def cell(record: Record | None) -> str:
    if record is None or record.timing is None:
        return "-"
    peak = "" if record.peak_mem_mb is None else f" ({record.peak_mem_mb:.0f})"
    return f"{record.timing.median_ms:.4f}{peak}"


def ratio(ours: Record | None, theirs: Record | None) -> str:
    if ours is None or theirs is None or ours.timing is None or theirs.timing is None or not ours.timing.median_ms:
        return "-"
    return f"{theirs.timing.median_ms / ours.timing.median_ms:.2f}"


@told
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False,
                                     epilog="any other option goes to chunkwise bench")  # fmt: skip
    parser.add_argument("--out", default=OUT, metavar="DIR", help=f"where the records go ({OUT})")
    args, more = parser.parse_known_args(argv)
    if not torch.cuda.is_available():
        help = "without one, chunkwise bench gated_delta --vs eager"
        raise ChunkwiseError(Diagnostic(codes.NO_GPU, "the peers' kernels need a GPU, and there is none", help=help))
    print("\n".join(peer_lines()), flush=True)
    found = max(run(command) for command in commands(args.out, more))
    path = Path(args.out) / FILE
    if path.exists():
        print("\n" + "\n".join(summary(read_records(path))))
    return found


if __name__ == "__main__":
    sys.exit(main())
