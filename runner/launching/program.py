"""A plan's launches with everything decided but the addresses: a flat run over them.

Every argument of every launch has a cell: a constant, or the address of an input, of a table of the sequences or of a
buffer. A launch picks its arguments out of the cells and goes straight to the compiled kernel. What Triton does before
that at every launch (bind, specialise, look the kernel up) depends on what a signature fixes, and on addresses only by
whether they are multiples of 16.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...stages._seqs import Seqs
from ..planning.execute import Values, on_device, results_of
from ..planning.plan import Buffer, Plan

ALIGNMENT = 16
"""Bytes: Triton compiles a kernel anew for an address that is no multiple of it."""


@dataclass(frozen=True)
class Made:
    """A buffer that is a tensor of its own. name: of the value, or of the scratch buffer and its node."""

    cell: int
    name: str
    buffer: Buffer


@dataclass(frozen=True)
class PreparedLaunch:
    """run: of what Triton compiled for the kernel. function, metadata: what it is handed of itself. pick: cells ->
    arguments."""

    kernel: Any
    run: Callable
    grid: tuple[int, int, int]
    function: Any
    metadata: Any
    pick: Callable[[list], tuple]


@dataclass(frozen=True)
class PreparedStep:
    """release: names of buffers that are not needed after this step."""

    made: tuple[Made, ...]
    launches: tuple[PreparedLaunch, ...]
    release: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """cells: constants at their places, 0 where an address goes. inputs, tables: (cell, name) of what a call brings.

    written: value -> the input that it is written over, of those that are results. pooled: (cell, offset) of the small
    buffers that are no results, in one piece of pool bytes.
    """

    plan: Plan
    cells: tuple
    inputs: tuple[tuple[int, str], ...]
    tables: tuple[tuple[int, str], ...]
    written: Mapping[str, str]
    pooled: tuple[tuple[int, int], ...]
    pool: int
    steps: tuple[PreparedStep, ...]

    def __call__(self, tensors: Mapping[str, torch.Tensor | None], seqs: Seqs) -> Values | None:
        """The plan's results; None, with nothing launched, where an input does not lie as kernels were compiled for."""
        device, cells, low = self.plan.device, list(self.cells), 0
        for cell, name in self.inputs:
            cells[cell] = address = tensors[name].data_ptr()
            low |= address
        if low % ALIGNMENT:
            return None
        for cell, name in self.tables:
            cells[cell] = getattr(seqs, name).data_ptr()
        values = dict(tensors)
        with on_device(device):
            stream = current_stream()
            if self.pool:
                pool = torch.empty(self.pool, dtype=torch.uint8, device=device)
                start = pool.data_ptr()
                for cell, offset in self.pooled:
                    cells[cell] = start + offset
            for step in self.steps:
                for each in step.made:
                    values[each.name] = x = torch.empty(each.buffer.shape, dtype=each.buffer.dtype, device=device)
                    cells[each.cell] = x.data_ptr()
                for each in step.launches:
                    each.run(*each.grid, stream, each.function, each.metadata, None, None, None, *each.pick(cells))
                for name in step.release:
                    del values[name]
            for value, over in self.written.items():
                values[value] = tensors[over]
            return results_of(self.plan, values, seqs)

    @property
    def hooked(self) -> bool:
        """Whether somebody wants to see each launch, as profilers do: then it must go through Triton."""
        return launches_are_seen() or any(each.kernel.pre_run_hooks for step in self.steps for each in step.launches)


def launches_are_seen() -> bool:
    from triton import knobs

    runtime = knobs.runtime
    hooks = (runtime.launch_enter_hook, runtime.launch_exit_hook)
    return any(getattr(hook, "calls", hook) for hook in hooks) or runtime.add_stages_inspection_hook is not None


def current_stream() -> int:
    """The stream that Triton launches on: the current one of the current device."""
    from triton.runtime import driver

    active = driver.active
    return active.get_current_stream(active.get_current_device())
