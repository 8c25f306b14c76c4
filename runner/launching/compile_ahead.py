"""A plan's kernels compiled before any of them is launched, several at a time, into Triton's own caches."""

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import torch

from ...stages._contract import Launch
from ...stages._seqs import Seqs
from ..planning.execute import Values, prepare
from ..planning.plan import Plan


def launches_of(plan: Plan, inputs: Values, params: Mapping[str, float], seqs: Seqs) -> Iterator[Launch]:
    """What a plan launches, in its order, on tensors without memory. inputs: what it takes; only shapes are read."""
    values, seqs = {name: bare(x) for name, x in inputs.items()}, bare_seqs(seqs)
    for step in plan.steps:
        outputs, run = prepare(step, plan, values, params, seqs, bare_buffer)
        values.update({name: outputs[port] for port, name in step.node.outputs.items()})
        if step.launcher:
            yield from run.launches


def compile_ahead(launches: Iterable[Launch], device: torch.device | None = None) -> list[Exception]:
    """For the current device. device: a GPU, on which the kernels are loaded too, with what Triton builds to call them.
    Threads do it, which wait for compilers most of the time. Returns why kernels do not compile; their launches will
    say so too."""
    from triton import AsyncCompileMode, FutureKernel

    with ThreadPoolExecutor(os.cpu_count()) as pool, AsyncCompileMode(pool, ignore_errors=True):
        kernels = [compiled(launch) for launch in launches if all(launch.grid)]
    errors = [kernel.future.exception() for kernel in kernels if isinstance(kernel, FutureKernel)]
    if device is not None and not any(errors):
        distinct = {id(kernel): kernel for kernel in kernels}.values()
        with ThreadPoolExecutor(os.cpu_count(), initializer=torch.cuda.set_device, initargs=(device,)) as pool:
            list(pool.map(load, distinct))
    return [error for error in errors if error]


def compiled(launch: Launch):
    """What Triton returns: a compiled kernel, or one to come."""
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    return launch.kernel.run(grid=launch.grid, warmup=True, **launch.args, **launch.constexprs, **options)


def load(kernel) -> None:
    """What a first launch would do; where that fails it says so."""
    with suppress(Exception):
        (kernel.result() if hasattr(kernel, "result") else kernel).run  # noqa: B018


@dataclass(frozen=True)
class Compilation:
    """cached: the kernel was in Triton's cache on disk. seconds: that it took, with the others beside it."""

    kernel: str
    seconds: float
    cached: bool


@contextmanager
def compilations() -> Iterator[list[Compilation]]:
    """What this process compiles meanwhile, or finds in Triton's cache on disk."""
    from triton import knobs

    found: list[Compilation] = []

    def listen(*, src, times, cache_hit, **others):
        found.append(Compilation(src.name, times.total / 1e6, cache_hit))

    with knobs.compilation.scope():
        knobs.compilation.listener = listen
        yield found


def bare(x: torch.Tensor | None) -> torch.Tensor | None:
    return None if x is None else bare_buffer(x.shape, x.dtype)


def bare_buffer(shape, dtype: torch.dtype, device: torch.device | None = None) -> torch.Tensor:
    """One that ``prepare`` asks for, in whatever place."""
    return torch.empty(shape, dtype=dtype, device="meta")


def bare_seqs(seqs: Seqs) -> Seqs:
    return replace(seqs, **{name: bare(getattr(seqs, name)) for name in ("cu_seqlens", "chunk_table", "chunk_offsets")})
