"""Softmax attention from 1K to 32K tokens: ours beside eager PyTorch, SDPA's flash and cuDNN back ends, FlexAttention.

    python examples/attention_sweep.py [--lengths 1024,2048,...] [--heads 32] [--key-heads 32] [--width 128]
                                       [--vs sdpa,cudnn,flex] [--device cuda]

Causal, one sequence, bf16 on a GPU; on a CPU the references run, at small sizes unless others are named. Four Markdown
tables go to stdout, forward alone and with gradients: milliseconds, and the peak of memory above the inputs in MB;
progress goes to stderr. All that can run at a length run in one race, on the same tensors, the L2 cache overwritten
before each run. What cannot says why in its cell, and below the tables.

Eager is attention as it is written first: the matrix of all scores in the IO dtype, a softmax, a product.
FlexAttention is compiled for each length; that happens first, in processes of their own, into the caches on disk.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context

import torch

from chunkwise.runner import load
from chunkwise.runner.benching.case import Case, InputSet, input_set
from chunkwise.runner.benching.peers import FAILURES, Inapplicable, find_peer, first_line
from chunkwise.runner.benching.whole_op import ours, run_once
from chunkwise.runner.graphs.sizes import complete
from chunkwise.runner.reporting.clocks import Clock, clock_of
from chunkwise.runner.reporting.memory import out_of_memory
from chunkwise.runner.script import device_option, peer_names, told, whole, wholes

ABSENT = ("lengths", "sinks", "slopes", "lse")
PASSES = {"forward": False, "forward and backward": True}


@dataclass(frozen=True)
class Setting:
    heads: int
    key_heads: int
    width: int
    device: torch.device

    def case(self, length: int, backward: bool) -> Case:
        op = load("flash")
        sizes = dict(B=1, Sq=length, Sk=length, HQ=self.heads, H=self.key_heads, D=self.width, DV=self.width)
        io = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        axes = complete(op.whole, sizes)
        return Case(op, None, axes, frozenset(sizes), None, io, self.device, backward, absent=ABSENT)


@dataclass
class Cells:
    """By pass, implementation and length. why: what could not run, in a word, and below the tables in a sentence."""

    ms: dict[tuple, str] = field(default_factory=dict)
    mb: dict[tuple, str] = field(default_factory=dict)
    why: list[str] = field(default_factory=list)

    def refuse(self, key: tuple, error: BaseException) -> None:
        full = out_of_memory(error)
        word = "out of memory" if full else "-"
        self.ms[key] = self.mb[key] = word
        if not full:
            reason = str(error) if isinstance(error, Inapplicable) else first_line(error)
            self.why.append(f"{key[1]}, {key[0]}, {key[2]} tokens: {reason}")


def eager(given: InputSet) -> Mapping[str, torch.Tensor]:
    q, k, v = (given.inputs[name].transpose(1, 2) for name in "qkv")
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(-1, -2)).mul_(given.call.params["scale"]).masked_fill_(later, float("-inf"))
    return {"o": (scores.softmax(-1) @ v).transpose(1, 2)}


def runners(case: Case, vs: list[str]) -> Iterator[tuple[str, Callable[[], Callable]]]:
    """(name, what makes its function). A peer's is its own to fail."""
    yield "chunkwise", lambda: ours(case)
    for name in vs:
        yield name, lambda name=name: find_peer(name, case).forward
    yield "eager", lambda: eager


def first_calls(setting: Setting, length: int) -> None:
    """Of FlexAttention; what it cannot serve is told where it is measured."""
    for backward in PASSES.values():
        with suppress(*FAILURES):
            case = setting.case(length, backward)
            run_once(find_peer("flex", case).forward, input_set(case))


def compile_ahead(setting: Setting, lengths: list[int]) -> None:
    print(f"compile FlexAttention for {len(lengths)} lengths", file=sys.stderr, flush=True)
    with ProcessPoolExecutor(len(lengths), get_context("spawn")) as pool:
        list(pool.map(first_calls, [setting] * len(lengths), lengths))


def measure(setting: Setting, length: int, way: str, vs: list[str], clock: Clock, cells: Cells) -> None:
    case = setting.case(length, PASSES[way])
    given, runs = input_set(case), {}
    for name, make in runners(case, vs):
        print(f"{length} tokens, {way}: {name}", file=sys.stderr, flush=True)
        key = (way, name, length)
        try:
            forward = make()
            run = lambda _, forward=forward: run_once(forward, given)  # noqa: E731
            run(0)
            peak = clock.peak_mb(run)
        except FAILURES as error:
            cells.refuse(key, error)
        else:
            runs[key], cells.mb[key] = run, "-" if peak is None else f"{peak:.0f}"
        if setting.device.type == "cuda":
            torch.cuda.empty_cache()
    for key, timing in zip(runs, clock.race(list(runs.values()))):
        cells.ms[key] = f"{timing.median_ms:.3f}"
        print(f"  {key[1]}: {cells.ms[key]} ms, {cells.mb[key]} MB", file=sys.stderr, flush=True)


def table(title: str, found: Mapping[tuple, str], way: str, names: list[str], lengths: list[int]) -> Iterator[str]:
    yield f"{title}, {way}"
    yield ""
    yield f"| tokens | {' | '.join(names)} |"
    yield "|" + "---|" * (len(names) + 1)
    for length in lengths:
        yield f"| {length} | {' | '.join(found.get((way, name, length), '-') for name in names)} |"
    yield ""


def report(setting: Setting, cells: Cells, names: list[str], lengths: list[int]) -> Iterator[str]:
    where = "CPU, references: no measure of the kernels"
    if setting.device.type == "cuda":
        where = torch.cuda.get_device_name(setting.device)
    yield f"Causal attention, {setting.heads} heads over {setting.key_heads}, width {setting.width}; {where}"
    yield ""
    for way in PASSES:
        yield from table("ms", cells.ms, way, names, lengths)
        yield from table("peak MB above the inputs", cells.mb, way, names, lengths)
    yield from cells.why


@told
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=wholes, help="tokens (1K to 32K doubled; on a CPU 64 to 512)")
    parser.add_argument("--heads", type=whole, help="of the queries (32; on a CPU 4)")
    parser.add_argument("--key-heads", type=whole, help="of keys and values (as many)")
    parser.add_argument("--width", type=whole, default=128, help="of a head (128)")
    parser.add_argument("--vs", type=peer_names, default="sdpa,cudnn,flex", help="peers of `chunkwise bench --vs`")
    device_option(parser)
    args = parser.parse_args(argv)
    first, last, heads = (64, 512, 4) if args.device.type == "cpu" else (1024, 32768, 32)
    args.lengths = args.lengths or [first << at for at in range((last // first).bit_length())]
    args.heads = args.heads or heads
    setting = Setting(args.heads, args.key_heads or args.heads, args.width, args.device)
    if setting.heads % setting.key_heads:
        parser.error(f"{setting.heads} heads are no multiple of {setting.key_heads} key heads")
    vs, lengths = args.vs, args.lengths
    if setting.device.type == "cuda" and "flex" in vs:
        compile_ahead(setting, lengths)
    cells, clock = Cells(), clock_of(setting.device)
    for length in lengths:
        for way in PASSES:
            measure(setting, length, way, vs, clock, cells)
    print("\n".join(report(setting, cells, ["chunkwise", *vs, "eager"], lengths)))


if __name__ == "__main__":
    sys.exit(main())
