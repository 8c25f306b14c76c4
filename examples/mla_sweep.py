"""One token of multi-head latent attention over a long cache: naive against absorbed against decode.

    python examples/mla_sweep.py [--contexts 4096,16384,65536] [--batches 1,32,64] [--heads 128] [--device cuda]

DeepSeek-V3's sizes: 128 heads, a latent of 512, keys of 128 and 64 with positions, values of 128, in bf16. mla_naive
makes keys and values of all heads from the latent first; mla_absorbed reads the latent itself; so does mla_decode,
whose sequences have lengths of their own, here all the whole context. A Markdown table goes to stdout: milliseconds of
the whole op and of its attention alone, the peak of memory above the inputs, and the least that attention over the
latent could take here (its bytes at the measured copy bandwidth, or its products at the measured rate, whichever is
longer). Progress goes to stderr. What does not fit in memory is a row that says so. On a CPU the sizes are small ones.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from chunkwise.runner import load
from chunkwise.runner.benching.device_rates import DeviceRates
from chunkwise.runner.benching.machine import this_machine
from chunkwise.runner.calling.call import Call
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.reporting.memory import out_of_memory
from chunkwise.runner.reporting.timing import time_call
from chunkwise.runner.script import device_option, told, whole, wholes
from chunkwise.runner.verification.generate import make_inputs

PIPELINES = ("mla_naive", "mla_absorbed", "mla_decode")
ON_GPU, ON_CPU = ((4096, 16384, 65536), (1, 32, 64), 128), ((256, 1024), (1, 2), 8)
"""(tokens before it, sequences, heads)."""
COLUMNS = ("batch", "context", "op", "ms", "attention ms", "peak MB", "least ms")


@dataclass(frozen=True)
class Point:
    """One token of each of B sequences, T tokens before it."""

    B: int
    T: int
    HQ: int
    device: torch.device

    @property
    def sizes(self) -> dict[str, int]:
        return dict(B=self.B, Sq=1, Sk=self.T, HQ=self.HQ, DC=512, DN=128, DR=64, DV=128)

    def call(self, name: str) -> Call:
        """Every sequence is as long as the cache."""
        op, io = load(name), torch.bfloat16 if self.device.type == "cuda" else torch.float32
        given = make_inputs(op.whole, complete(op.whole, self.sizes), io, self.device)
        return op.bind(given | {"lengths": torch.full((self.B,), self.T, dtype=torch.int32, device=self.device)})

    def least_ms(self, rates: DeviceRates | None) -> float | None:
        """Each number of the latent is read once; every head multiplies it twice, and the part with positions once."""
        if rates is None:
            return None
        moved = self.B * self.T * (512 + 64) * 2
        flops = 2 * self.B * self.T * self.HQ * (2 * 512 + 64)
        return 1e3 * max(moved / (rates.copy_gbps * 1e9), flops / (rates.matrix_tflops * 1e12))


def row(point: Point, name: str, rates: DeviceRates | None) -> list[str]:
    print(f"batch {point.B}, {point.T} tokens: {name}", file=sys.stderr, flush=True)
    told, least = [str(point.B), str(point.T), name], shown(point.least_ms(rates))
    try:
        found = time_call(point.call(name))
    except Exception as error:
        if not out_of_memory(error):
            raise
        return [*told, "out of memory", "", "", least]
    finally:
        if point.device.type == "cuda":
            torch.cuda.empty_cache()
    attend = next(stage for stage in found.stages if stage.id == "attend")
    ms = (found.end_to_end.median_ms, attend.timing.median_ms)
    return [*told, *map(shown, ms), shown(found.peak_mem_mb, 0), least]


def shown(x: float | None, digits: int = 4) -> str:
    return "" if x is None else f"{x:.{digits}f}"


def table(rows: Iterator[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    yield from (f"| {' | '.join(cells)} |" for cells in rows)


@told
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--contexts", type=wholes)
    parser.add_argument("--batches", type=wholes)
    parser.add_argument("--heads", type=whole)
    device_option(parser)
    args = parser.parse_args(argv)
    device = args.device
    usual = ON_GPU if device.type == "cuda" else ON_CPU
    contexts, batches, heads = (x or y for x, y in zip((args.contexts, args.batches, args.heads), usual, strict=True))
    points = [Point(B, T, heads, device) for B in batches for T in contexts]
    rates = this_machine(device, torch.bfloat16, str).rates if device.type == "cuda" else None
    where = torch.cuda.get_device_name(device) if rates else "CPU, references: no measure of the kernels"
    print(f"One token of {heads} heads over a latent of 512 and 64; {where}\n")
    with torch.inference_mode():
        print("\n".join(table(row(point, name, rates) for point in points for name in PIPELINES)))


if __name__ == "__main__":
    sys.exit(main())
