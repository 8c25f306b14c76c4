"""A plan's launches with everything decided but the addresses: a flat run over them.

Every argument of every launch has a cell: a constant, or the address of an input, of a table of the sequences or of a
buffer. A launch picks its arguments out of the cells and goes straight to the compiled kernel. What Triton does before
that at every launch (bind, specialise, look the kernel up) depends on what a signature fixes, and on addresses only by
whether they are multiples of 16.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import NamedTuple

import torch

from ...stages._seqs import Seqs
from ..planning.execute import ALIGNMENT, Values, results_of
from ..planning.plan import Plan
from .direct import Pick

STREAM = 0
"""The cell of the stream that a run launches on, which is the current one of the plan's device."""
NOWHERE: Mapping = MappingProxyType({})
"""No places for results: each is a tensor of its own."""

Make = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]


class Made(NamedTuple):
    """A buffer that is a tensor of its own. name: of the value, or of the scratch buffer and its node."""

    cell: int
    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class PreparedLaunch(NamedTuple):
    """launch: of what Triton compiled. pick: cells -> what it is called with."""

    launch: Callable
    pick: Pick


class Stretch(NamedTuple):
    """Launches between which nothing is allocated. release: names of buffers that are not needed after them."""

    made: tuple[Made, ...]
    launches: tuple[PreparedLaunch, ...]
    release: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """cells: constants at their places, 0 where an address goes, and the stream in front. inputs, tables: (cell, name)
    of what a call brings.

    written: value -> the input that it is written over, of those that are results. pooled: (cell, offset) of the small
    buffers that are no results, in one piece of pool bytes. kernels: those that are launched.
    """

    plan: Plan
    cells: tuple
    inputs: tuple[tuple[int, str], ...]
    tables: tuple[tuple[int, str], ...]
    written: Mapping[str, str]
    pooled: tuple[tuple[int, int], ...]
    pool: int
    stretches: tuple[Stretch, ...]
    kernels: tuple

    def __call__(
        self, tensors: Mapping[str, torch.Tensor | None], seqs: Seqs, into: Mapping[str, torch.Tensor] = NOWHERE
    ) -> Values | None:
        """The plan's results; None, with nothing launched, where an input does not lie as kernels were compiled for.
        into: results by name that are written into these tensors, where kernels can."""
        cells, low = list(self.cells), 0
        for cell, name in self.inputs:
            x = tensors[name]
            if not x.is_contiguous() or x.is_neg():
                return None
            cells[cell] = address = x.data_ptr()
            low |= address
        if low % ALIGNMENT:
            return None
        for cell, name in self.tables:
            cells[cell] = getattr(seqs, name).data_ptr()
        if self.gpu is None or self.gpu == torch.cuda.current_device():
            return self.launched(cells, tensors, seqs, into)
        with torch.cuda.device(self.gpu):
            return self.launched(cells, tensors, seqs, into)

    def launched(self, cells: list, tensors: Mapping[str, torch.Tensor | None], seqs: Seqs, into: Mapping) -> Values:
        """On the current device. cells: with the addresses of what came in."""
        make, values, places = self.make, dict(tensors), self.places(into) if into else into
        cells[STREAM] = triton().runtime.driver.active.get_current_stream(self.gpu)
        if self.pool:
            pool = make((self.pool,), (1,), torch.uint8)
            start = pool.data_ptr()
            for cell, offset in self.pooled:
                cells[cell] = start + offset
        for made, launches, release in self.stretches:
            for cell, name, shape, strides, dtype in made:
                values[name] = x = places[name] if name in places else make(shape, strides, dtype)
                cells[cell] = x.data_ptr()
            for launch, pick in launches:
                launch(*pick(cells))
            for name in release:
                del values[name]
        for value, over in self.written.items():
            values[value] = tensors[over]
        return results_of(self.plan, values, seqs)

    def places(self, into: Mapping[str, torch.Tensor]) -> Values:
        """The tensors that kernels can write, by value."""
        able = {name: x for name, x in into.items() if x.is_contiguous() and x.data_ptr() % ALIGNMENT == 0}
        return {self.plan.results[name]: x for name, x in able.items() if name in self.plan.results}

    @cached_property
    def gpu(self) -> int | None:
        """Its number; None where a driver stands in for a GPU's."""
        return self.plan.device.index if self.plan.device.type == "cuda" else None

    @cached_property
    def make(self) -> Make:
        return maker(self.plan.device)

    @property
    def seen(self) -> bool:
        """Whether somebody wants to see each launch, as profilers do: then it must go through Triton."""
        runtime = triton().knobs.runtime
        for hook in (runtime.launch_enter_hook, runtime.launch_exit_hook):
            if getattr(hook, "calls", hook):
                return True
        for kernel in self.kernels:
            if kernel.pre_run_hooks:
                return True
        return runtime.add_stages_inspection_hook is not None


def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device="cuda") -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def maker(device: torch.device) -> Make:
    """Allocates on a device, which is the current one."""
    return quick_make() if device.type == "cuda" else partial(empty, device=device)


@cache
def quick_make() -> Make:
    """What PyTorch's compiler has its own code allocate by: on an H200 2.6 microseconds in place of 4.5, which go into
    reading keywords and finding the device. torch.empty_strided where this PyTorch has it elsewhere."""
    return getattr(torch._C._dynamo.guards, "_empty_strided_cuda", empty)


@cache
def triton():
    import triton

    return triton
