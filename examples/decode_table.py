"""What one more token costs: four recurrent steps against softmax attention over a growing cache.

    python examples/decode_table.py [--batch 8] [--heads 32] [--width 128] [--contexts 4096,16384,65536] [--device cuda]

Softmax attention reads the keys and values of all tokens so far for each new one: time and memory grow with the
context. The steps of `pipelines/gla_step.yaml`, `lightning_step.yaml`, `kda_step.yaml` and `mamba2_step.yaml` read a
state and write it back, which has the same size after any number of tokens. Each is one Triton kernel.

Two tables are printed: milliseconds for one token of every sequence of the batch, and the bytes that a sequence keeps.
All ops have the same heads and widths (mamba2_step: heads x width channels with as many states each as a head is
wide); the cache is in the IO dtype, states are float32. A step has no context: it is timed anew in each column.

On a GPU: bf16, Triton's kernels and PyTorch's scaled_dot_product_attention with one query, CUDA events, the L2 cache
overwritten before each run. On a CPU: float32, smaller, one thread, and the steps run their references in PyTorch. That
shows what grows and what does not; it is no measure of the kernels.
"""

import argparse
import sys
from dataclasses import dataclass
from functools import partial

import torch

from chunkwise.runner import load
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.reporting.clocks import Clock, clock_of
from chunkwise.runner.reporting.timing import time_call
from chunkwise.runner.script import device_option, told, whole, wholes
from chunkwise.runner.verification.generate import make_inputs

STEPS = ("gla_step", "lightning_step", "kda_step", "mamba2_step")


@dataclass(frozen=True)
class Setting:
    """batch sequences; heads of that width; the tokens that lie before the new one, by column."""

    batch: int
    heads: int
    width: int
    contexts: tuple[int, ...]
    device: torch.device

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def io(self) -> torch.dtype:
        return torch.bfloat16 if self.on_gpu else torch.float32

    @property
    def sizes(self) -> dict[str, int]:
        """Of every axis that a step may have."""
        B, H, D = self.batch, self.heads, self.width
        return dict(B=B, T=1, H=H, HV=H, K=D, V=D, D=D, DI=H * D, NS=D)


@dataclass(frozen=True)
class Row:
    """ms: milliseconds for a token of every sequence, by context. kept: bytes that a sequence keeps, by context."""

    name: str
    ms: tuple[float, ...]
    kept: tuple[int, ...]


def softmax_row(setting: Setting, clock: Clock) -> Row:
    ms, kept = [], []
    for context in setting.contexts:
        heads = (setting.batch, setting.heads)
        cache = torch.randn(2, *heads, context, setting.width, dtype=setting.io, device=setting.device)
        query = torch.randn(*heads, 1, setting.width, dtype=setting.io, device=setting.device)
        attention = partial(torch.nn.functional.scaled_dot_product_attention, query, *cache)
        (timing,) = clock.race([lambda _: attention()], ahead=True)  # noqa: B023
        ms.append(timing.median_ms)
        kept.append(cache.nbytes // setting.batch)
    return Row("softmax", tuple(ms), tuple(kept))


def step_row(name: str, setting: Setting) -> Row:
    op = load(name)
    call = op.bind(make_inputs(op.whole, complete(op.whole, setting.sizes), setting.io, setting.device))
    timings = [time_call(call).stages for _ in setting.contexts]
    kept = call.contiguous["initial_state"].nbytes // setting.batch
    return Row(name, tuple(stage.timing.median_ms for (stage,) in timings), (kept,) * len(timings))


def rows(setting: Setting) -> list[Row]:
    with torch.inference_mode():
        softmax = softmax_row(setting, clock_of(setting.device))
        return [softmax, *(step_row(name, setting) for name in STEPS)]


def size_text(count: int) -> str:
    """1536 as 1.5 KiB."""
    power = min(3, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def table(head: str, setting: Setting, lines: list[tuple[str, list[str]]]) -> str:
    columns = [f"{context:,} tokens" for context in setting.contexts]
    shown = [(head, columns), *lines]
    return "\n".join(f"{name:<24}" + "".join(f"{cell:>16}" for cell in cells) for name, cells in shown)


def report(setting: Setting, found: list[Row]) -> str:
    where = torch.cuda.get_device_name(setting.device) if setting.on_gpu else "CPU"
    how = "Triton kernels, CUDA events, cold L2" if setting.on_gpu else "wall clock, one thread, PyTorch references"
    dtype = str(setting.io).removeprefix("torch.")
    sizes = f"{setting.batch} sequences, {setting.heads} heads of width {setting.width}, {dtype}"
    note = [] if setting.on_gpu else ["These are CPU times of the references: no measure of the kernels."]
    times = [(row.name, [f"{ms:.4f}" for ms in row.ms]) for row in found]
    kept = [(row.name, [size_text(count) for count in row.kept]) for row in found]
    return "\n".join(
        [f"{sizes}; {where}: {how}", *note, "", table("ms per token", setting, times), "",
         table("kept per sequence", setting, kept)]
    )  # fmt: skip


def arguments(argv: list[str] | None) -> Setting:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=whole, help="8 on a GPU, 1 on a CPU")
    parser.add_argument("--heads", type=whole, help="32 on a GPU, 4 on a CPU")
    parser.add_argument("--width", type=whole, help="128 on a GPU, 64 on a CPU")
    parser.add_argument("--contexts", type=wholes, default="4096,16384,65536")
    device_option(parser)
    args = parser.parse_args(argv)
    defaults = (8, 32, 128) if args.device.type == "cuda" else (1, 4, 64)
    batch, heads, width = (own or usual for own, usual in zip((args.batch, args.heads, args.width), defaults))
    return Setting(batch, heads, width, tuple(args.contexts), args.device)


@told
def main(argv: list[str] | None = None) -> None:
    setting = arguments(argv)
    if not setting.on_gpu:
        torch.set_num_threads(1)
    print(report(setting, rows(setting)))


if __name__ == "__main__":
    sys.exit(main())
