"""The launches of an expression's kernels, on the terms of stages/_map_launches.py, and the buffers of their sums."""

import inspect
from collections.abc import Iterable, Mapping
from functools import cached_property

from ...stages import _map_launches
from ...stages._contract import F32, Port
from ...stages._middle_sums import PARTS
from ..stage_files.stage_library import SHIPPED_PACKAGE
from .kernel_source import kernel_source
from .layout import Layout, reductions
from .load_source import load_source
from .map_source import D, MapSource

ROOT = SHIPPED_PACKAGE.rpartition(".")[0]
KERNELS_HEAD = f"import triton\nimport triton.language as tl\n\nfrom {ROOT}.kernels import _maps\n\n\n"


def signature(names: Iterable[str], keywords: Iterable[str]) -> inspect.Signature:
    first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    return inspect.Signature([*first, *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in keywords)])


class Kernel:
    """A launch whose kernel is written out and loaded at the first call."""

    def __init__(self, source: MapSource, name: str):
        self.source, self.name = source, name

    @cached_property
    def kernel(self):
        return getattr(load_source(KERNELS_HEAD + kernel_source(self.source)), self.name)


class Forward(Kernel):
    """launch(*operands, y, *, scalars, seqs, config)."""

    def __init__(self, source: MapSource):
        super().__init__(source, "map_kernel")
        self.__signature__ = signature([*source.layout.has, "y"], [*source.scalars, "seqs", "config"])

    def __call__(self, *tensors, seqs, config, **scalars):
        layout = self.source.layout
        found = dict(zip([*layout.has, "y"], tensors, strict=True))
        shape = layout.segments, layout.fixed_columns
        return [_map_launches.map_launch(self.kernel, found, scalars, found["y"], *shape, config)]


class Backward(Kernel):
    """launch(d_y, *operands that are read, *gradients, *scratch, *, scalars, seqs, config)."""

    def __init__(self, source: MapSource):
        super().__init__(source, "map_vjp_kernel")
        self.layout, self.by_row, self.tail = source.layout, by_row(source.layout), tail(source.layout)
        gradients = [f"d_{name}" for name in source.layout.has]
        self.direct = [*source.read_by_vjp, *(name for name in gradients if name[2:] not in source.layout.reduced)]
        self.sums = {
            name: (list(scratch(self.layout, (name,))), reductions(self.layout, name)) for name in self.layout.reduced
        }
        names = [*source.read_by_vjp, *gradients, *scratch(source.layout)]
        self.__signature__ = signature(names, [*source.vjp_scalars, "seqs", "config"])

    def __call__(self, *tensors, seqs, config, **scalars):
        given = dict(zip(self.__signature__.parameters, tensors))
        sums = {
            name: (given[f"d_{name}"], [given[each] for each in buffers], further)
            for name, (buffers, further) in self.sums.items()
        }
        direct = {name: given[name] for name in self.direct}
        return _map_launches.map_vjp_launches(
            self.kernel, direct, scalars, given[D], self.layout.segments, self.layout.fixed_columns, sums,
            self.by_row, self.tail, seqs, config,
        )  # fmt: skip


def by_row(layout: Layout) -> bool:
    """Whether some gradient is summed over the columns, by programs that take whole rows."""
    return any(not layout.has[name][-1] for name in layout.reduced)


def tail(layout: Layout) -> tuple[int, bool] | None:
    """The axis along which sequences are packed, and whether it counts chunks."""
    for axis in ("T", "NT"):
        if axis in layout.axes:
            return layout.axes.index(axis), axis == "NT"
    return None


def scratch(layout: Layout, operands: Iterable[str] | None = None) -> Mapping[str, Port]:
    """Buffers of the sums, operand by operand: the terms, then for each sum its parts, where it is split, and its
    total, where another one follows."""
    found = {}
    for name in layout.reduced if operands is None else operands:
        sums = reductions(layout, name)
        for at, (before, run, after, split) in enumerate(sums):
            if at == 0:
                found[f"sum_{name}_terms"] = float32(layout.names([*before, *run, *after]))
            if split:
                found[f"sum_{name}_parts{at}"] = float32([*layout.names(before), str(PARTS), *layout.names(after)])
            if at + 1 < len(sums):
                found[f"sum_{name}_total{at}"] = float32(layout.names([*before, *after]))
    return found


def float32(axes: Iterable[str]) -> Port:
    return Port(" ".join(axes), F32)
